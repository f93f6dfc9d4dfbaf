// Package random draws random texts.
package random

import "io"

// Base62 has the digits and the ASCII letters.
const Base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// Base36 has the digits and the lower-case ASCII letters.
const Base36 = "0123456789abcdefghijklmnopqrstuvwxyz"

// Text draws n characters of an ASCII alphabet from source, all with the same probability. It fails
// only if source fails.
func Text(source io.Reader, alphabet string, n int) (string, error) {
	// It rejects bytes from fair on. Modulo the length of the alphabet, they would make its first
	// characters more likely than the others.
	fair := 256 - 256%len(alphabet)
	text := make([]byte, n)
	for length := 0; length < n; {
		if _, err := io.ReadFull(source, text[length:]); err != nil {
			return "", err
		}
		for _, b := range text[length:] {
			if int(b) < fair {
				text[length] = alphabet[int(b)%len(alphabet)]
				length++
			}
		}
	}
	return string(text), nil
}

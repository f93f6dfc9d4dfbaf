package access

import (
	"context"
	"regexp"
	"runtime"
	"sync"

	"github.com/alexedwards/argon2id"
	"golang.org/x/sync/semaphore"
)

// argon are the costs that OWASP advises for Argon2id. A hash takes 19 MiB and some 25 ms.
var argon = argon2id.Params{Memory: 19 << 10, Iterations: 2, Parallelism: 1, SaltLength: 16,
	KeyLength: 32}

// Passwords hashes and compares passwords of links. It leaves one processor to everything else, and
// takes the memory of so many hashes, however many callers there are.
type Passwords struct{ turns *semaphore.Weighted }

// maxTurns is how many hashes there are at once at most. Each counts as one of a wrong password
// until it is compared, so there have to be fewer than LimitWrong allows.
const maxTurns = 8

// NewPasswords returns Passwords for all callers of a process.
func NewPasswords() *Passwords {
	return &Passwords{semaphore.NewWeighted(int64(max(1, min(maxTurns, runtime.GOMAXPROCS(0)-1))))}
}

// Hash returns a password's hash as a PHC string, with a salt of its own. It waits for its turn
// until ctx ends, and then returns the error of ctx.
func (p *Passwords) Hash(ctx context.Context, password string) (string, error) {
	if err := p.turns.Acquire(ctx, 1); err != nil {
		return "", err
	}
	defer p.turns.Release(1)
	return argon2id.CreateHash(password, &argon)
}

// Match reports whether a hash is that of a password. What is no valid hash is nobody's. It waits
// as Hash does. When its turn has come, it calls begin, whose error it returns; nil: nothing.
func (p *Passwords) Match(ctx context.Context, hash, password string, begin func() error) (bool,
	error) {
	if password == "" || !ValidHash(hash) {
		return false, nil
	}
	if err := p.turns.Acquire(ctx, 1); err != nil {
		return false, err
	}
	defer p.turns.Release(1)
	if begin != nil {
		if err := begin(); err != nil {
			return false, err
		}
	}
	return argon2id.ComparePasswordAndHash(password, hash)
}

// phc matches a hash as Hash returns it. It takes 0.16 MB, so it is compiled on first use.
var phc = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(
		`^\$argon2id\$v=19\$m=\d{1,5},t=[12],p=1\$[A-Za-z\d+/]{11,86}\$[A-Za-z\d+/]{22,86}$`)
})

// ValidHash reports whether a text is the hash of a password that costs no more than those of Hash.
func ValidHash(hash string) bool {
	if !phc().MatchString(hash) {
		return false
	}
	costs, _, _, err := argon2id.DecodeHash(hash)
	return err == nil && costs.Memory >= 8 && costs.Memory <= argon.Memory
}

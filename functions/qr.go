package functions

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"net/http"
	"strconv"

	"rsc.io/qr/coding"

	"tiney/internal/clicks"
	"tiney/internal/link"
)

// qrLevels are the levels of error correction, from the least to the most.
var qrLevels = map[string]coding.Level{"L": coding.L, "M": coding.M, "Q": coding.Q, "H": coding.H}

// qr handles GET /api/links/{alias}/qr: a QR code of the short URL. It makes no storage call, so a
// code can be printed before its link exists, and does not reveal whether the link exists. Only a
// link of a domain that the service does not have any more must be there.
func (s *service) qr(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
	a, err := s.nameIn(r)
	if err != nil {
		return err
	}
	if !s.Rules.Has(a.Domain()) {
		// Otherwise anybody could have codes of any website made.
		if err := s.limits.guess(r, func() error {
			_, err := s.Links.Read(ctx, a)
			return err
		}); err != nil {
			return err
		}
	}
	query := parametersOf(r)
	format := query.oneOf("format", "svg", "png")
	look := qrLook{
		size:   query.integer("size", 300, 64, 2000),
		margin: query.integer("margin", 4, 0, 16),
		fg:     query.color("fg", color.RGBA{A: 255}),
		bg:     query.color("bg", color.RGBA{255, 255, 255, 255}),
	}
	level := query.oneOf("level", "M", "L", "Q", "H")
	source := clicks.ParseSource(query.text("source"))
	switch {
	case source == clicks.Other:
		query.wrong("source", "source may have 64 letters, digits, hyphens, underscores and dots.")
	case contrast(look.fg, look.bg) < minContrast:
		query.wrong("fg", fmt.Sprintf("fg must be darker than bg, with a contrast of %g to 1 at "+
			"least: many phones cannot read the code else.", minContrast))
	}
	if err := query.err(); err != nil {
		return err
	}
	contentType, draw := "image/svg+xml", svgOf
	if format == "png" {
		contentType, draw = "image/png", pngOf
	}
	shortURL := s.Rules.ShortURL(link.Link{Name: a})
	if source != "" {
		shortURL += "?utm_source=" + source
	}
	image, err := s.drawQR(ctx, shortURL, qrLevels[level], draw, look)
	if err != nil {
		return err
	}
	setHeaders(w, contentType)
	h := w.Header()
	h.Set("Cache-Control", "private, max-age=86400")       // Front Door ignores queries
	h.Set("Content-Security-Policy", "default-src 'none'") // an SVG can be opened as a document
	h.Set("Content-Length", strconv.Itoa(len(image)))
	_, _ = w.Write(image)
	return nil
}

// drawQR waits for its turn and draws one code. An image may take megabytes and milliseconds, and
// asking for one costs the caller nothing. drawQR returns before the image is sent, so that no slow
// client delays others.
func (s *service) drawQR(
	ctx context.Context, text string, level coding.Level,
	draw func(*coding.Code, qrLook) []byte, look qrLook,
) ([]byte, error) {
	select {
	case s.drawing <- struct{}{}:
		defer func() { <-s.drawing }()
	case <-ctx.Done():
		return nil, busyProblem
	}
	code, err := encodeQR(text, level)
	if err != nil {
		return nil, err
	}
	if modules := code.Size + 2*look.margin; look.size < modules {
		detail := fmt.Sprintf("This code with its margin has %d modules a side; "+
			"size must be at least that.", modules)
		return nil, badRequest("parameter", "Invalid parameter", detail, "size")
	}
	return draw(code, look), nil
}

// qrLook is how a code looks.
type qrLook struct {
	size   int // of the image, in pixels
	margin int // in modules
	fg, bg color.RGBA
}

// minContrast is what WCAG asks for of text, and what cameras need.
const minContrast = 4.5

// contrast returns the contrast of a colour with a lighter one (WCAG 2.2), and less than 1 if it is
// the lighter one itself.
func contrast(dark, light color.RGBA) float64 {
	luminance := func(c color.RGBA) (sum float64) {
		for i, v := range [...]uint8{c.R, c.G, c.B} {
			part := float64(v) / 255
			if part <= 0.04045 {
				part /= 12.92
			} else {
				part = math.Pow((part+0.055)/1.055, 2.4)
			}
			sum += [...]float64{0.2126, 0.7152, 0.0722}[i] * part
		}
		return sum
	}
	return (luminance(light) + 0.05) / (luminance(dark) + 0.05)
}

// hexOf writes a colour as SVG has it, and as the parameters have it behind the #.
func hexOf(c color.RGBA) string { return fmt.Sprintf("#%02x%02x%02x", c.R, c.G, c.B) }

// encodeQR encodes a text in the smallest version that holds it, with the mask of the lowest
// penalty.
func encodeQR(text string, level coding.Level) (*coding.Code, error) {
	data := coding.String(text)
	version := coding.Version(coding.MinVersion)
	for data.Bits(version) > version.DataBytes(level)*8 {
		if version++; version > coding.MaxVersion {
			return nil, fmt.Errorf("a QR code cannot hold %d bytes", len(text))
		}
	}
	var best *coding.Code
	least := math.MaxInt
	for mask := range coding.Mask(8) {
		plan, err := coding.NewPlan(version, level, mask)
		if err != nil {
			return nil, err
		}
		code, err := plan.Encode(data)
		if err != nil {
			return nil, err
		}
		if p := penalty(code); p < least {
			best, least = code, p
		}
	}
	return best, nil
}

// penalty rates a code by ISO/IEC 18004, section 7.8.3: runs and blocks of one colour, patterns
// that look like a finder, and an imbalance of black and white make it hard to scan.
func penalty(c *coding.Code) (points int) {
	black := 0
	for y := range c.Size {
		for _, at := range []func(x int) bool{
			func(x int) bool { return c.Black(x, y) }, // the row
			func(x int) bool { return c.Black(y, x) }, // the column
		} {
			run, last := 0, uint(0) // length of the run, and the last eleven modules
			for x := range c.Size {
				bit := uint(0)
				if at(x) {
					bit = 1
				}
				if x > 0 && bit == last&1 {
					run++
				} else {
					run = 1
				}
				switch {
				case run == 5:
					points += 3
				case run > 5:
					points++
				}
				last = (last<<1 | bit) & 0b11111111111
				if x >= 10 && (last == 0b10111010000 || last == 0b00001011101) {
					points += 40
				}
			}
		}
		for x := range c.Size {
			b := c.Black(x, y)
			if b {
				black++
			}
			if x > 0 && y > 0 && b == c.Black(x-1, y) && b == c.Black(x, y-1) &&
				b == c.Black(x-1, y-1) {
				points += 3
			}
		}
	}
	percent := black * 100 / (c.Size * c.Size)
	return points + max(percent-50, 50-percent)/5*10
}

// svgOf draws a code as one path of horizontal runs.
func svgOf(c *coding.Code, look qrLook) []byte {
	var b bytes.Buffer
	modules := c.Size + 2*look.margin
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" `+
		`viewBox="0 0 %d %d" shape-rendering="crispEdges">`+
		`<path fill="%s" d="M0 0h%dv%dH0z"/><path fill="%s" d="`,
		look.size, look.size, modules, modules, hexOf(look.bg), modules, modules, hexOf(look.fg))
	for y := range c.Size {
		for x := 0; x < c.Size; x++ {
			start := x
			for x < c.Size && c.Black(x, y) {
				x++
			}
			if x > start {
				fmt.Fprintf(&b, "M%d %dh%dv1h-%dz", start+look.margin, y+look.margin, x-start,
					x-start)
			}
		}
	}
	b.WriteString(`"/></svg>`)
	return b.Bytes()
}

// pngOf draws a code with modules of whole pixels, in the middle of the image.
func pngOf(c *coding.Code, look qrLook) []byte {
	size := look.size
	scale := size / (c.Size + 2*look.margin)
	offset := (size - c.Size*scale) / 2
	palette := color.Palette{look.bg, look.fg}
	img := image.NewPaletted(image.Rect(0, 0, size, size), palette)
	row := make([]byte, size)
	for y := range c.Size {
		clear(row)
		for x := range c.Size {
			if c.Black(x, y) {
				for i := range scale {
					row[offset+x*scale+i] = 1
				}
			}
		}
		for i := range scale {
			copy(img.Pix[(offset+y*scale+i)*img.Stride:], row)
		}
	}
	var b bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestSpeed}
	_ = encoder.Encode(&b, img) // writing to a buffer cannot fail
	return b.Bytes()
}

package functions_test

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/makiuchi-d/gozxing"
	"github.com/makiuchi-d/gozxing/qrcode"

	"tiney/internal/link"
)

func scan(t *testing.T, img image.Image) string {
	t.Helper()
	bitmap, err := gozxing.NewBinaryBitmapFromImage(img)
	if err != nil {
		t.Fatal(err)
	}
	result, err := qrcode.NewQRCodeReader().Decode(bitmap,
		map[gozxing.DecodeHintType]any{gozxing.DecodeHintType_PURE_BARCODE: true})
	if err != nil {
		t.Fatalf("it cannot be scanned: %v", err)
	}
	return result.GetText()
}

// drawn draws an SVG that qr has written, with one pixel per module.
func drawn(t *testing.T, svg []byte) (img *image.Gray, size int) {
	t.Helper()
	var doc struct {
		Width   int    `xml:"width,attr"`
		ViewBox string `xml:"viewBox,attr"`
		Paths   []struct {
			D string `xml:"d,attr"`
		} `xml:"path"`
	}
	var modules int
	if err := xml.Unmarshal(svg, &doc); err != nil || len(doc.Paths) != 2 {
		t.Fatalf("%v in %s", err, svg)
	}
	if _, err := fmt.Sscanf(doc.ViewBox, "0 0 %d", &modules); err != nil {
		t.Fatal(err)
	}
	img = image.NewGray(image.Rect(0, 0, modules, modules))
	for i := range img.Pix {
		img.Pix[i] = 255
	}
	for run := range strings.SplitSeq(strings.Trim(doc.Paths[1].D, "Mz"), "zM") {
		var x, y, n, back int
		if _, err := fmt.Sscanf(run, "%d %dh%dv1h-%d", &x, &y, &n, &back); err != nil || n != back {
			t.Fatalf("%q: %v", run, err)
		}
		for i := range n {
			img.SetGray(x+i, y, color.Gray{})
		}
	}
	return img, doc.Width
}

func TestQR(t *testing.T) {
	r := newRig(t)
	for _, alias := range []string{"a", "6GV88b", strings.Repeat("Z", link.MaxAliasLength)} {
		for _, level := range []string{"", "L", "M", "Q", "H"} {
			for _, margin := range []int{0, 4, 16} {
				query := fmt.Sprintf("?margin=%d", margin)
				if level != "" {
					query += "&level=" + level
				}
				w := r.get("/api/links/" + alias + "/qr" + query)
				if w.Code != 200 || w.Header().Get("Content-Type") != "image/svg+xml" ||
					w.Header().Get("Cache-Control") != "private, max-age=86400" {
					t.Fatalf("got %d %v %s", w.Code, w.Header(), w.Body)
				}
				img, size := drawn(t, w.Body.Bytes())
				if got := scan(t, img); got != "https://tiney.to/"+alias || size != 300 {
					t.Errorf("%s%s: %q in %d pixels", alias, query, got, size)
				}
				if img.GrayAt(margin, margin).Y != 0 || margin > 0 &&
					img.GrayAt(margin-1, margin).Y != 255 {
					t.Errorf("%s%s: the margin is not %d", alias, query, margin)
				}
			}
		}
	}
	for _, size := range []int{64, 301, 2000} {
		w := r.get("/API/Links/6GV88b/QR/?format=png&size=" + strconv.Itoa(size))
		img, err := png.Decode(bytes.NewReader(w.Body.Bytes()))
		if err != nil || w.Header().Get("Content-Type") != "image/png" {
			t.Fatalf("%v in %d %v", err, w.Code, w.Header())
		}
		if got := scan(t, img); got != "https://tiney.to/6GV88b" || img.Bounds().Dx() != size ||
			img.Bounds().Dy() != size {
			t.Errorf("%q in %v", got, img.Bounds())
		}
	}
	if r.fake.Calls() != 0 {
		t.Error("it looked the link up")
	}
}

// Colours and a source are those that the query asks for, and the code can be scanned with them.
func TestQRInColours(t *testing.T) {
	r := newRig(t)
	for query, want := range map[string]struct{ dark, light, text string }{
		"":                          {"#000000", "#ffffff", ""},
		"&fg=0B7A5B":                {"#0b7a5b", "#ffffff", ""},
		"&fg=000000&bg=757575":      {"#000000", "#757575", ""}, // 4.57 to 1
		"&fg=767676&source=":        {"#767676", "#ffffff", ""}, // 4.54 to 1
		"&bg=ffeecc&source=QR_a.-1": {"#000000", "#ffeecc", "?utm_source=qr_a.-1"},
	} {
		svg := r.get("/api/links/6GV88b/qr?size=300" + query).Body.String()
		if !strings.Contains(svg, `<path fill="`+want.light+`" d="M0 0h`) ||
			!strings.Contains(svg, `<path fill="`+want.dark+`" d="M4 4h7`) {
			t.Errorf("%s: got %.300s", query, svg)
		}
		img, err := png.Decode(bytes.NewReader(
			r.get("/api/links/6GV88b/qr?format=png&size=300" + query).Body.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		if got := scan(t, img); got != "https://tiney.to/6GV88b"+want.text {
			t.Errorf("%s: the code says %q", query, got)
		}
		red, green, blue, _ := img.At(0, 0).RGBA()
		if got := fmt.Sprintf("#%02x%02x%02x", red>>8, green>>8, blue>>8); got != want.light {
			t.Errorf("%s: the corner is %s", query, got)
		}
	}
}

func TestQRThatIsRefused(t *testing.T) {
	r := newRig(t)
	for query, field := range map[string]string{
		"size=63":              "size",
		"size=2001":            "size",
		"size=":                "size",
		"size=1e2":             "size",
		"size=100&size=200":    "size",
		"margin=-1":            "margin",
		"margin=17":            "margin",
		"level=m":              "level",
		"format=gif":           "format",
		"size=64&margin=16":    "size", // 33 modules, and 32 of the margins
		"size=100&size=&level": "size",
		"size=%zz":             "",
		"fg=777777":            "fg", // 4.48 to 1
		"fg=ffffff&bg=000000":  "fg",
		"bg=747474":            "fg", // 4.49 to 1
		"fg=000":               "fg",
		"bg=%23ffffff":         "bg",
		"bg=white":             "bg",
		"bg=":                  "bg",
		"source=a%20b":         "source",
		"source=a&source=b":    "source",
		"size=300;margin=1":    "",
	} {
		alias := strings.Repeat("Z", link.MaxAliasLength)
		wantProblem(t, r.get("/api/links/"+alias+"/qr?"+query), 400, "parameter", field)
	}
	wantProblem(t, r.get("/api/links/a.b/qr"), 404, "not-found", "")
	wantProblem(t, r.do("POST", "/api/links/abc/qr", ""), 405, "method", "")
}

// A QR code costs its caller nothing, so the memory that many of them take at once must be bounded.
func TestQRsAtOnceTakeLittleMemory(t *testing.T) {
	r := newRig(t)
	most := r.drawMany(t)
	for try := 1; most > 80<<20 && try < 3; try++ { // what other tests have left may count, too
		most = r.drawMany(t)
	}
	if most > 80<<20 { // 60 images of 4 MB would take 240 MB
		t.Errorf("%d MB more", most>>20)
	}
}

// drawMany draws 60 large codes at once, and returns by how much the heap grows, in bytes.
func (r *rig) drawMany(t *testing.T) uint64 {
	var drawn atomic.Int64
	most := heapOf(60, func() {
		w := r.get("/api/links/" + strings.Repeat("a", link.MaxAliasLength) +
			"/qr?format=png&size=2000&margin=0&level=H")
		if w.Code == 200 {
			drawn.Add(1)
		} else { // the request's time was over before its turn came
			wantProblem(t, w, 503, "busy", "")
		}
	})
	if drawn.Load() == 0 {
		t.Error("none is drawn")
	}
	return most
}

// heapOf returns by how much the heap grows, at most, while many callers do something at once.
func heapOf(callers int, do func()) (most uint64) {
	var before, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var all sync.WaitGroup
	for range callers {
		all.Go(do)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		all.Wait()
	}()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-done:
			return most - min(most, before.HeapAlloc)
		case <-ticker.C:
			runtime.ReadMemStats(&now)
			most = max(most, now.HeapAlloc)
		}
	}
}

func TestBelowAPI(t *testing.T) {
	r := newRig(t)
	// Errors are problems, and never pages.
	wantProblem(t, r.get("/api/nothing", "Accept", "text/html"), 404, "not-found", "")
	for target, want := range map[string]string{"/api/shorten": "POST, OPTIONS",
		"/Api/Links/x/qr": "GET, HEAD, OPTIONS"} {
		if w := r.do("OPTIONS", target, ""); w.Code != 204 || w.Header().Get("Allow") != want ||
			w.Body.Len() > 0 {
			t.Errorf("%s: got %d %v %s", target, w.Code, w.Header(), w.Body)
		}
	}
}

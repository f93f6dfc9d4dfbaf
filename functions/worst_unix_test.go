//go:build unix

package functions_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"tiney/functions"
	"tiney/internal/access"
	"tiney/internal/link"
)

// No request takes more than worstMemory and worstTime beyond its body and the same request with
// the least body, and one whose body has at most smallBody bytes, no more than smallMemory. The
// time is that of a processor that reads yardstick in 28 ms.
const (
	worstMemory = 20_000_000
	smallMemory = 3_000_000
	smallBody   = 64 << 10
	worstTime   = 100 * time.Millisecond
)

var yardstick = []byte("[0" + strings.Repeat(",0", 500_000) + "]")

// slowness returns how much longer the machine takes just now than the processor of worstTime.
// Others may share its processors, and then it takes twice as long as a moment before.
func slowness() float64 {
	begun := usedTime()
	var numbers []int
	_ = json.Unmarshal(yardstick, &numbers)
	return max(1, float64(usedTime()-begun)/float64(28*time.Millisecond))
}

// usedTime returns the time for which the process has had a processor. Unlike the time that passes,
// it hardly depends on what else the machine does.
func usedTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// read returns a measurement of the runtime.
func read(name string) int64 {
	sample := []metrics.Sample{{Name: name}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}

// liveMemory returns by how many bytes the live heap grows, at most, while f runs. It collects
// garbage whenever a little memory has been allocated, and reads what is left each time.
func liveMemory(f func()) int64 {
	const live = "/gc/heap/live:bytes"
	defer debug.SetGCPercent(debug.SetGCPercent(1))
	runtime.GC()
	before := read(live)
	seen := make(chan int64, 1)
	seen <- before
	var done atomic.Bool
	type cycle struct{ p *int }
	var again func(*cycle)
	again = func(*cycle) { // runs after each collection
		most := <-seen
		seen <- max(most, read(live))
		if !done.Load() {
			runtime.SetFinalizer(&cycle{new(int)}, again)
		}
	}
	runtime.SetFinalizer(&cycle{new(int)}, again)
	f()
	most := <-seen
	done.Store(true)
	seen <- most
	return most - before
}

// cost is what a request takes: the memory, up to what matters here, and the time.
type cost struct {
	memory int64
	time   time.Duration
}

// measure returns the cost of a request, which f makes anew each time. It tries again what seems to
// cost too much: something else may have taken the time, or allocated. All that a request allocates
// is an upper limit of what it has at once. A large body may be worked off piece by piece: then
// what is live counts twice, because Go lets the heap become so large before it collects garbage.
func measure(body int, f func() (request func())) (least cost) {
	large := body > smallBody
	for try := range 5 {
		request := f()
		memory, used := read("/gc/heap/allocs:bytes"), usedTime()
		request()
		used, memory = usedTime()-used, read("/gc/heap/allocs:bytes")-memory
		if used > worstTime/2 {
			used = time.Duration(float64(used) / slowness())
		}
		if try == 0 {
			least = cost{memory, used}
		}
		least = cost{min(least.memory, memory), min(least.time, used)}
		if least.time < worstTime*9/10 && (large || least.memory <= smallMemory) {
			break
		}
	}
	for try := 0; try < 5 && large && least.memory > worstMemory+int64(body); try++ {
		least.memory = min(least.memory, 2*liveMemory(f()))
	}
	return least
}

// worstValues are JSON values of about n bytes, at most, by what is bad about them.
func worstValues(n int) map[string]string {
	list := func(element string) string {
		return "[" + strings.Repeat(element+",", max(0, (n-2)/(len(element)+1)-1)) + element + "]"
	}
	text := func(part string) string { return `"` + strings.Repeat(part, (n-2)/len(part)) + `"` }
	nested := func(open, end string) string {
		depth := min(9_000, (n-3)/(len(open)+len(end)))
		return list(strings.Repeat(open, depth) + "0" + strings.Repeat(end, depth))
	}
	wide := func(format string) string {
		var b strings.Builder
		for i := 0; b.Len() < n-len(format)-16; i++ {
			fmt.Fprintf(&b, format, i)
		}
		return "{" + strings.TrimSuffix(b.String(), ",") + "}"
	}
	all := map[string]string{
		"numbers":           list("0"),
		"empty texts":       list(`""`),
		"short texts":       list(`"a"`),
		"escaped texts":     list(`"\u00e9"`),
		"nulls":             list("null"),
		"objects":           list("{}"),
		"lists":             list("[]"),
		"small lists":       list("[0]"),
		"small objects":     list(`{"a":0,"b":""}`),
		"objects of lists":  list(`{"a":[{"b":[0]}]}`),
		"nested lists":      nested("[", "]"),
		"nested objects":    nested(`{"a":`, "}"),
		"nested wide lists": nested(`[0,0,0,0,0,0,`, "]"),
		"a thousand deep":   list(strings.Repeat("[0,0,0,0,", 960) + "0" + strings.Repeat("]", 960)),
		"many members":      wide(`"%x":0,`),
		"many long members": wide(`"a-long-name-of-a-member-%x":"",`),
		"escaped members":   wide(`"\u0061%x":null,`),
		"members of lists":  wide(`"%x":[],`),
		"a text":            text("a"),
		"escapes":           text(`\u00e9`),
		"pairs of escapes":  text(`\ud83d\ude00`),
		"control escapes":   text(`\u0001`),
		"backslashes":       text(`\\`),
		"wide characters":   text("𝔘"),
		"marks":             text("e\u0301\u0323"),
		"blanks":            text(" "),
		"a number":          strings.Repeat("9", n),
		"a fraction":        "0." + strings.Repeat("1", n-2),
		"an exponent":       "1e" + strings.Repeat("9", n-2),
		"long numbers":      list(strings.Repeat("8", 300)),
		"exponents":         list("1e400"),
		"a long URL":        `"https://example.com/` + strings.Repeat("ü<", max(0, (n-24)/3)) + `"`,
		"a long host":       `"https://` + strings.Repeat("ü.", max(0, (n-14)/3)) + `com/"`,
		"encoded hosts":     `"https://` + strings.Repeat("xn--tda.", max(0, (n-14)/8)) + `com/"`,
		"one long label":    `"https://` + strings.Repeat("ü", max(0, (n-15)/2)) + `.com/"`,
		"percents":          `"https://example.com/` + strings.Repeat("%", max(0, n-22)) + `"`,
		"a long query":      `"https://example.com/?` + strings.Repeat("a&", max(0, (n-23)/2)) + `"`,
		"addresses":         `"https://` + strings.Repeat("0x1.", max(0, (n-12)/4)) + `1/"`,
		"dots":              `"https://example.com/` + strings.Repeat("../", max(0, (n-22)/3)) + `"`,
	}
	maps.DeleteFunc(all, func(_, value string) bool { return len(value) > n })
	return all
}

// worstBodies calls yield with bodies of at most n bytes for an operation: each of the worst values
// as the body, and as each of its fields.
func worstBodies(n int, s *openapi3.Schema, yield func(what, body string)) {
	for what, value := range worstValues(n) {
		yield(what, value)
	}
	if s == nil {
		return
	}
	valid := ""
	for _, field := range []string{"longUrl", "name"} {
		if s.Properties[field] != nil {
			valid = fmt.Sprintf(`%q:"https://example.com/",`, field)
		}
	}
	for field, of := range s.Properties {
		before := "{"
		if !strings.HasPrefix(valid, fmt.Sprintf("%q", field)) {
			before += valid
		}
		before += fmt.Sprintf("%q:", field)
		for what, value := range worstValues(n - len(before) - 1) {
			yield(what+" as "+field, before+value+"}")
		}
		if of.Value.Items == nil || of.Value.Items.Value == nil {
			continue
		}
		for inner := range of.Value.Items.Value.Properties {
			item := fmt.Sprintf(`{%q:`, inner)
			for what, value := range worstValues(n - len(before) - len(item) - 4) {
				yield(what+" as "+field+"."+inner, before+"["+item+value+"}]}")
			}
			const many = 64
			for what, value := range worstValues((n-len(before)-4)/many - len(item) - 2) {
				all := strings.Repeat(item+value+"},", many)
				yield(what+" as each "+field+"."+inner,
					before+"["+strings.TrimSuffix(all, ",")+"]}")
			}
		}
	}
}

// worstMessages calls yield with bodies for POST /api/mcp.
func worstMessages(t *testing.T, r *rig, n int, yield func(what, body string)) {
	var listed struct {
		Result struct {
			Tools []struct {
				Name        string
				InputSchema struct{ Properties map[string]any }
			}
		}
	}
	w := r.message("ann", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	if err := json.Unmarshal(w.Body.Bytes(), &listed); err != nil || len(listed.Result.Tools) < 8 {
		t.Fatalf("got %v, %v", listed, err)
	}
	frame := func(what, before, after string) {
		for kind, value := range worstValues(n - len(before) - len(after)) {
			yield(kind+" as "+what, before+value+after)
		}
	}
	const call = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{`
	frame("id", `{"jsonrpc":"2.0","method":"ping","id":`, `}`)
	frame("method", `{"jsonrpc":"2.0","id":1,"method":`, `}`)
	frame("params", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":`, `}`)
	frame("an unknown member", `{"jsonrpc":"2.0","id":1,"method":"ping","x":`, `}`)
	frame("result", `{"jsonrpc":"2.0","id":1,"result":`, `}`)
	frame("error", `{"jsonrpc":"2.0","id":1,"error":`, `}`)
	frame("progressToken",
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":`, `}}`)
	frame("experimental", `{"jsonrpc":"2.0","id":1,"method":"initialize",`+
		`"params":{"capabilities":{"experimental":`, `}}}`)
	frame("arguments of a prompt", `{"jsonrpc":"2.0","id":1,"method":"prompts/get",`+
		`"params":{"name":"x","arguments":`, `}}`)
	const latest = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientInfo":{"name":"x","version":"1"},` +
		`"io.modelcontextprotocol/clientCapabilities":{"a":`
	frame("capabilities", call+`"name":"getLink","arguments":{"alias":"anns"},`+latest, `}}}}`)
	frame("_meta", call+`"name":"getLink","_meta":`, `}}`)
	frame("name", call+`"name":`, `}}`)
	for _, tool := range listed.Result.Tools {
		name := fmt.Sprintf(`"name":%q,"arguments":`, tool.Name)
		frame("arguments of "+tool.Name, call+name, `}}`)
		frame("an unknown argument of "+tool.Name, call+name+`{"alias":"anns","x":`, `}}}`)
		for argument := range tool.InputSchema.Properties {
			alias := `"alias":"anns",`
			if argument == "alias" {
				alias = ""
			}
			frame(tool.Name+"."+argument, call+name+fmt.Sprintf(`{%s%q:`, alias, argument), `}}}`)
		}
	}
}

// worstFiles calls yield with files of at most n bytes for an import.
func worstFiles(t *testing.T, n int, yield func(what, query, body string)) {
	for what, value := range worstValues(n) {
		for _, format := range []string{"ndjson", "csv", "kutt", "auto"} {
			yield(what, "?format="+format, value)
		}
	}
	samples, err := filepath.Glob("../internal/formats/testdata/*.*")
	if err != nil || len(samples) == 0 {
		t.Fatal(samples, err)
	}
	kinds := []string{"short texts", "objects", "escapes", "nested lists", "nested wide lists",
		"many members", "long numbers", "a long host"}
	for _, sample := range samples {
		file, err := os.ReadFile(sample)
		if err != nil {
			t.Fatal(err)
		}
		format := regexp.MustCompile(`^[a-z]+`).FindString(filepath.Base(sample))
		query := "?format=" + format
		switch filepath.Ext(sample) {
		case ".json", ".ndjson":
			names := map[string]bool{}
			for _, m := range regexp.MustCompile(`"(\w+)":`).FindAllStringSubmatch(string(file), -1) {
				names[m[1]] = true
			}
			around := [3]string{"", "\n", ""}
			for _, list := range []string{"data", "links"} {
				if names[list] {
					around = [3]string{`{"` + list + `":[`, ",", "]}"}
				}
			}
			for name := range names {
				before := fmt.Sprintf(`{"longUrl":"https://example.com/",%q:`, name)
				values := worstValues(n/4 - len(before) - 8)
				for _, kind := range kinds {
					all := slices.Repeat([]string{before + values[kind] + "}"}, 4)
					yield(kind+" as "+name, query, around[0]+strings.Join(all, around[1])+around[2])
				}
			}
		case ".csv", ".tsv":
			first, rest, _ := strings.Cut(string(file), "\n")
			second, _, _ := strings.Cut(rest, "\n")
			for what, row := range map[string]struct{ start, part, end string }{
				"commas":           {"", ",", ""},
				"semicolons":       {"", ";", ""},
				"tabs":             {"", "\t", ""},
				"empty lines":      {"", "\n", ""},
				"carriage returns": {"", "\r", ""},
				"quotes":           {"", `"`, ""},
				"quoted quotes":    {`"`, `""`, `"`},
				"quoted commas":    {"", `"",`, ""},
				"an open quote":    {`"`, "a\n", ""},
				"short lines":      {"", "a,\n", ""},
				"the sample":       {"", second + "\n", ""},
				"headers":          {"", first + "\n", ""},
				"a long field":     {"", "a", ""},
				"a last field":     {second, "a b, |", ""},
				"wide characters":  {"", "é", ""},
				"no UTF-8":         {"", "\xff", ""},
			} {
				for _, rows := range []int{1, 4} { // a record may have 1 MiB
					size := (n-len(first)-1)/rows - len(row.start) - len(row.end) - 1
					yield(fmt.Sprint(what, " in ", rows), query, first+"\n"+strings.Repeat(row.start+
						strings.Repeat(row.part, size/len(row.part))+row.end+"\n", rows))
				}
			}
			for i := range strings.Split(first, ",") {
				fields := slices.Repeat([]string{"1"}, strings.Count(first, ",")+1)
				for what, part := range map[string]string{"tags": "a b, |", "a long field": "ü"} {
					size := (n-len(first))/4 - 2*len(fields) - 4
					fields[i] = `"` + strings.Repeat(part, size/len(part)) + `"`
					yield(fmt.Sprint(what, " as field ", i), query, first+"\n"+
						strings.Repeat(strings.Join(fields, ",")+"\n", 4))
				}
			}
		}
	}
}

// longestBody returns how many bytes of a body a route reads; 0 if it reads none.
func (r *rig) longestBody(send func(body string) *http.Request) int {
	for _, n := range []int{1 << 10, 32 << 10, 64 << 10, 1 << 20, 2 << 20, 4 << 20} {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, send(strings.Repeat(" ", n+1)))
		if w.Code == http.StatusRequestEntityTooLarge {
			return n
		}
	}
	return 0
}

var worstAll = flag.Bool("functions.worst", false, "try all large bodies, not some that chance picks")

// No request takes much memory or time, whatever its body. This goes through all routes, so that a
// new one is tried, too.
func TestNoBodyTakesMuch(t *testing.T) {
	skipIfSlow(t)
	d := loadOpenAPI(t)
	routes := map[string]string{"POST /reaper": "public", "POST /": "public"}
	for route, who := range apiRoutes {
		routes[route] = who
	}
	schemas := map[string]*openapi3.Schema{}
	for path, item := range d.Paths.Map() {
		for method, operation := range item.Operations() {
			if operation.RequestBody != nil {
				for _, content := range operation.RequestBody.Value.Content {
					if content.Schema != nil {
						schemas[method+" "+samples.Replace(path)] = content.Schema.Value
					}
				}
			}
		}
	}
	reading := 0
	for route, of := range routes {
		t.Run(route, func(t *testing.T) {
			method, target, _ := strings.Cut(route, " ")
			r := newRig(t, func(c *functions.Config) { c.Rates = access.Rates{} })
			someLinks(t, r)
			r.as("ann", "GET", "/api/me", "")
			secret := r.keys.of["ann"]
			if of == "admins" {
				secret = adminKey
			}
			send := func(query, body string) *http.Request {
				req := httptest.NewRequest(method, target+query, strings.NewReader(body))
				req.Header.Set("Content-Type", "application/json")
				req.Header.Set("Accept", "application/json, text/event-stream")
				switch {
				case target == "/":
					req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
				case target == "/reaper":
					req.Host = hostAddress
				default:
					req.Header.Set("X-Api-Key", secret)
				}
				if strings.Contains(body, "2026-07-28") {
					req.Header.Set("Mcp-Protocol-Version", "2026-07-28")
					req.Header.Set("Mcp-Method", "tools/call")
					req.Header.Set("Mcp-Name", "getLink")
				}
				return req
			}
			most := r.longestBody(func(body string) *http.Request { return send("", body) })
			if most == 0 {
				return
			}
			reading++
			memory := func(body string) int64 { return worstMemory + int64(len(body)) }
			if most <= smallBody {
				memory = func(string) int64 { return smallMemory }
			}
			tried, worst := 0, cost{}
			costOf := func(query, body string) cost {
				return measure(len(body), func() func() {
					req, w := send(query, body), httptest.NewRecorder()
					return func() { r.ServeHTTP(w, req) }
				})
			}
			costOf("", "{}") // the first request makes what lasts
			base := costOf("", "{}")
			try := func(what, query, body string) {
				if len(body) > most {
					t.Errorf("%s has %d bytes, more than %d", what, len(body), most)
				}
				tried++
				got := costOf(query, body)
				got.time -= base.time
				got.memory -= base.memory
				worst = cost{max(worst.memory, got.memory), max(worst.time, got.time)}
				if got.memory > memory(body) || got.time > worstTime {
					t.Errorf("%s%s, %d bytes: %d bytes and %v", what, query, len(body), got.memory,
						got.time)
				}
			}
			// A large body takes half a second, and all take ten minutes: one in forty is tried.
			if most > smallBody && !*worstAll {
				all := try
				try = func(what, query, body string) {
					if rand.IntN(40) == 0 {
						all(what, query, body)
					}
				}
			}
			simply := func(what, body string) { try(what, "", body) }
			switch target {
			case "/":
				worstForms(most, simply)
			case "/api/mcp":
				worstMessages(t, r, most, simply)
			case "/api/import":
				worstFiles(t, most, try)
			default:
				worstBodies(most, schemas[route], simply)
			}
			t.Logf("%d bodies of up to %d bytes: at most %d bytes and %v", tried, most,
				worst.memory, worst.time)
		})
	}
	if reading < 9 {
		t.Errorf("only %d routes read a body", reading)
	}
}

// worstForms calls yield with bodies for the form.
func worstForms(n int, yield func(what, body string)) {
	for what, value := range worstValues(n) {
		yield(what, value)
	}
	for _, part := range []string{"&", "a&", "a=&", "%41", "%41=&", "+", "%", ";", "longUrl&"} {
		yield(part, strings.Repeat(part, n/len(part)))
	}
	for _, field := range []string{"longUrl=", "alias=", "longUrl=https://example.com/&alias=",
		"longUrl=https://example.com/&expiresInSeconds=", "x=", "longUrl=https://"} {
		for _, part := range []string{"a", "%c3%bc", "%c3%bc.", "%f0%9d%94%98", "<", "%22", "%26",
			"%00", "9", "%ff", "xn--tda.", "%25"} {
			yield(part+" as "+field, field+strings.Repeat(part, (n-len(field))/len(part)))
		}
	}
}

// Neither does any request whose path or query is as long as the server lets it be.
func TestNoURLTakesMuch(t *testing.T) {
	skipIfSlow(t)
	const n = 31 << 10 // headers have 32 KiB
	var parts []string
	for _, text := range []string{"a", "ü", "ü.", "𝔘", "%", "\x00", ",", "a,", "a.", "../", "/",
		":", "xn--tda.", "a@", "@", " ", "a ", "&", "9", "-", "+", "A", "[", "\xff",
		"e\u0301\u0323", "0x1."} {
		parts = append(parts, url.QueryEscape(text))
	}
	d := loadOpenAPI(t)
	r := newRig(t, func(c *functions.Config) { c.Rates = access.Rates{} })
	r.as("ann", "GET", "/api/me", "")
	tried, worst := 0, cost{}
	try := func(method, target string) {
		t.Helper()
		tried++
		got := measure(0, func() func() {
			req, w := httptest.NewRequest(method, "/", nil), httptest.NewRecorder()
			u, err := url.ParseRequestURI(target)
			if err != nil {
				return func() {}
			}
			req.URL, req.RequestURI = u, target
			req.Header.Set("X-Api-Key", r.keys.of["ann"])
			if strings.HasPrefix(target, "/api/blocked") || strings.HasPrefix(target, "/api/admin") {
				req.Header.Set("X-Api-Key", adminKey)
			}
			return func() { r.ServeHTTP(w, req) }
		})
		worst = cost{max(worst.memory, got.memory), max(worst.time, got.time)}
		if got.memory > worstMemory || got.time > worstTime {
			t.Errorf("%s %.80s…: %d bytes and %v", method, target, got.memory, got.time)
		}
	}
	for path, item := range d.Paths.Map() {
		for method, operation := range item.Operations() {
			for _, part := range parts {
				long := strings.Repeat(part, n/len(part))
				var names []string
				for _, p := range slices.Concat(item.Parameters, operation.Parameters) {
					switch p.Value.In {
					case "query":
						names = append(names, p.Value.Name)
					case "path":
						try(method, strings.ReplaceAll(path, "{"+p.Value.Name+"}", long))
					}
				}
				path := samples.Replace(path)
				for _, name := range append(names, "unknown") {
					try(method, path+"?"+name+"="+long)
				}
				try(method, path+"?"+long)
			}
			for _, many := range []string{"a&", "a=&", "tag=t&", "q=a&", "%41&"} {
				try(method, samples.Replace(path)+"?"+strings.Repeat(many, n/len(many)))
			}
		}
	}
	for _, part := range parts { // redirects
		for _, path := range []string{"/", "/x/", "/x?", "/manage/"} {
			try("GET", path+strings.Repeat(part, n/len(part)))
		}
	}
	t.Logf("%d requests: at most %d bytes and %v", tried, worst.memory, worst.time)
}

// A search of as many words and tags as it may have costs little, in as many and as long links as a
// call looks at.
func TestNoSearchTakesMuch(t *testing.T) {
	skipIfSlow(t)
	r := newRig(t)
	var tags []string
	for i := range link.MaxTags {
		tags = append(tags, fmt.Sprintf("%02d%s", i, strings.Repeat("t", 30)))
	}
	for i := range 1000 {
		l := link.Link{Name: link.Name(fmt.Sprint("l", i)), Owner: "ann", Tags: tags,
			Title:   strings.Repeat("a", 200),
			LongURL: "https://example.com/" + strings.Repeat("a", 4000)}
		for c := 'b'; c <= 'z'; c++ {
			l.LongURL += "a" + string(c)
		}
		r.fake.Put(l)
	}
	search := func(query url.Values) cost {
		return measure(0, func() func() {
			return func() {
				for _, path := range []string{"/api/links?", "/api/export?"} {
					if w := r.as("ann", "GET", path+query.Encode(), ""); w.Code != 200 {
						t.Errorf("got %d %s", w.Code, w.Body)
					}
				}
			}
		})
	}
	least := search(url.Values{"q": {"none-of-them"}, "tag": {"nowhere"}})
	const ends = "ab ac ad ae af ag ah ai aj ak al am an ao ap aq ar as at "
	for name, query := range map[string]url.Values{
		"words at the end": {"q": {ends}},
		"and one nowhere":  {"q": {ends + "nowhere"}},
		"long ones":        {"q": {strings.Repeat("a", 198) + "ü"}},
		"half a URL":       {"q": {strings.Repeat("a", 2048) + "ü"}},
		"a URL":            {"q": {"https://example.com/" + strings.Repeat("a", 4000) + "b"}},
		"two halves":       {"q": {strings.Repeat("a", 99) + "ab " + strings.Repeat("a", 97) + "b"}},
		"ten":              {"q": {"aaaaaaaaab aaaaaaaaac aaaaaaaaad aaaaaaaaae aaaaaaaaaf aaaaaaaaag"}},
		"tags":             {"tag": tags},
		"everything":       {"q": {ends + "nowhere"}, "tag": tags},
	} {
		got := search(query)
		t.Logf("%s: %d bytes and %v, without a search %v", name, got.memory, got.time, least)
		if got.time-least.time > 2*worstTime {
			t.Errorf("%s: %v, without a search %v", name, got.time, least.time)
		}
	}
}

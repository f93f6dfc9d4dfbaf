// Package memtables is a double of the table service that keeps its rows in memory and answers at once, for measurements
// in which Azurite would take most of the time. It knows the calls by which links are made and reaped, and the filters of
// the reaper; to all else it says so. Its test holds it against Azurite.
package memtables

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"tiney/internal/azurite"
)

// Service is one table service.
type Service struct {
	server *httptest.Server

	mu     sync.Mutex
	tables map[string]table
	writes int64 // that were made so far: no two rows have one ETag
	calls  map[string]int
}

// table has the rows by partition and row key.
type table map[string]map[string]row

type row struct {
	etag string
	json []byte // the properties as minimal metadata has them, without the opening brace
}

// Start starts a service without tables. Close ends it.
func Start() *Service {
	s := &Service{tables: map[string]table{}, calls: map[string]int{}}
	s.server = httptest.NewServer(http.HandlerFunc(s.serve))
	return s
}

// Close ends the service and all connections to it.
func (s *Service) Close() {
	s.server.CloseClientConnections()
	s.server.Close()
}

// ConnectionString returns the connection string of the service, which has tables and nothing else.
func (s *Service) ConnectionString() string {
	return azurite.Ports{Table: s.server.Listener.Addr().(*net.TCPAddr).Port}.ConnectionString()
}

// Calls returns how often each operation was called, by its name in the service's documentation; "" is what was refused.
func (s *Service) Calls() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.calls)
}

// Rows returns how many rows there are in all tables.
func (s *Service) Rows() (rows int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tables {
		for _, p := range t {
			rows += len(p)
		}
	}
	return rows
}

// Insert adds a row without a call.
func (s *Service) Insert(table string, entity []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.insert(table, entity); a.status != http.StatusCreated {
		return fmt.Errorf("insert into %s: %d %s", table, a.status, a.body)
	}
	return nil
}

// answer is what a call is answered with.
type answer struct {
	status int
	code   string // of an error
	header map[string]string
	body   []byte
}

// failures are the errors that the service knows, with what Azure says.
var failures = map[string]struct {
	status  int
	message string
}{
	"TableAlreadyExists":          {http.StatusConflict, "The table specified already exists."},
	"TableNotFound":               {http.StatusNotFound, "The table specified does not exist."},
	"EntityAlreadyExists":         {http.StatusConflict, "The specified entity already exists."},
	"ResourceNotFound":            {http.StatusNotFound, "The specified resource does not exist."},
	"UpdateConditionNotSatisfied": {http.StatusPreconditionFailed, "The update condition specified in the request was not satisfied."},
	"InvalidInput":                {http.StatusBadRequest, "An error occurred while processing this request."},
	"NotImplemented":              {http.StatusNotImplemented, "This double of the table service does not know that."},
}

func failed(code, prefix string) answer {
	f := failures[code]
	body := fmt.Appendf(nil, `{"odata.error":{"code":%q,"message":{"lang":"en-US","value":%q}}}`, code, prefix+f.message)
	return answer{status: f.status, code: code, body: body}
}

func (s *Service) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	s.mu.Lock()
	operation, a := s.call(r, body)
	s.calls[operation]++
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json;odata=minimalmetadata")
	if a.code != "" {
		w.Header().Set("x-ms-error-code", a.code)
		w.Header().Set("Content-Type", "application/json;odata=minimalmetadata;streaming=true;charset=utf-8")
	}
	for name, value := range a.header {
		w.Header().Set(name, value)
	}
	if a.status == http.StatusNoContent {
		w.Header().Del("Content-Type")
	}
	w.WriteHeader(a.status)
	w.Write(a.body)
}

// rowKeys is what stands between the brackets of a row's address.
var rowKeys = regexp.MustCompile(`^PartitionKey='((?:[^']|'')*)',RowKey='((?:[^']|'')*)'\)$`)

func (s *Service) call(r *http.Request, body []byte) (operation string, a answer) {
	name, query := strings.TrimPrefix(r.URL.Path, "/"+azurite.Account+"/"), r.URL.Query()
	name, keys, _ := strings.Cut(name, "(")
	row := rowKeys.FindStringSubmatch(keys)
	t, there := s.tables[name]
	switch method := r.Method; {
	case r.Header.Get("Authorization") == "", r.Header.Get("Accept") != "application/json;odata=minimalmetadata", r.Header.Get("Prefer") != "",
		len(query) > 0 && keys != ")":
	case method == http.MethodPost && name == "$batch":
		return "SubmitTransaction", s.batch(body)
	case method == http.MethodPost && name == "Tables":
		return "CreateTable", s.create(body)
	case method == http.MethodPost && keys == "":
		return "InsertEntity", s.insert(name, body)
	case !there && (row != nil || keys == ")"):
		return "", failed("TableNotFound", "")
	case method == http.MethodGet && row != nil:
		if found, there := t[unquote(row[1])][unquote(row[2])]; there {
			return "GetEntity", answer{status: http.StatusOK, header: map[string]string{"ETag": found.etag}, body: s.minimal(name, found)}
		}
		return "GetEntity", failed("ResourceNotFound", "")
	case method == http.MethodDelete && row != nil:
		d := deletion{t, unquote(row[1]), unquote(row[2]), r.Header.Get("If-Match")}
		if code := d.check(); code != "" {
			return "DeleteEntity", failed(code, "")
		}
		d.apply()
		return "DeleteEntity", answer{status: http.StatusNoContent}
	case method == http.MethodGet && keys == ")":
		return "QueryEntities", s.query(name, query)
	}
	return "", failed("NotImplemented", "")
}

func unquote(key string) string { return strings.ReplaceAll(key, "''", "'") }

func (s *Service) create(body []byte) answer {
	var asked struct{ TableName string }
	if err := json.Unmarshal(body, &asked); err != nil || asked.TableName == "" {
		return failed("InvalidInput", "")
	}
	if _, there := s.tables[asked.TableName]; there {
		return failed("TableAlreadyExists", "")
	}
	s.tables[asked.TableName] = table{}
	return answer{status: http.StatusCreated, header: map[string]string{"Preference-Applied": "return-content"},
		body: fmt.Appendf(nil, `{"odata.metadata":%q,"TableName":%q}`, s.url("$metadata#Tables/@Element"), asked.TableName)}
}

func (s *Service) insert(name string, entity []byte) answer {
	properties, wrong := parse(entity)
	if wrong != "" {
		return failed(wrong, "")
	}
	partition, key := properties["PartitionKey"].(string), properties["RowKey"].(string)
	t, there := s.tables[name]
	if !there {
		return failed("TableNotFound", "")
	}
	if _, there := t[partition][key]; there {
		return failed("EntityAlreadyExists", "")
	}
	if t[partition] == nil {
		t[partition] = map[string]row{}
	}
	s.writes++
	at := time.Unix(0, s.writes*100).UTC().Format("2006-01-02T15:04:05.0000000Z") // a time in name alone
	next := row{etag: `W/"datetime'` + url.QueryEscape(at) + `'"`}
	properties["Timestamp"], properties["odata.etag"] = at, next.etag
	next.json, _ = json.Marshal(properties) // it was JSON before
	next.json = next.json[1:]
	t[partition][key] = next
	return answer{status: http.StatusCreated, header: map[string]string{"ETag": next.etag, "Preference-Applied": "return-content"}, body: s.minimal(name, next)}
}

// parse reads a row that is to be inserted, and says what is wrong with it.
func parse(entity []byte) (properties map[string]any, wrong string) {
	if err := json.Unmarshal(entity, &properties); err != nil {
		return nil, "InvalidInput"
	}
	for _, name := range []string{"PartitionKey", "RowKey"} {
		if key, ok := properties[name].(string); !ok || strings.ContainsAny(key, "/\\#?") {
			return nil, "InvalidInput"
		}
	}
	for name, value := range properties {
		if of, isType := strings.CutSuffix(name, "@odata.type"); isType {
			at, _ := properties[of].(string)
			if value != "Edm.DateTime" {
				return nil, "NotImplemented"
			}
			if _, err := time.Parse(time.RFC3339, at); err != nil {
				return nil, "InvalidInput"
			}
			continue
		}
		switch value.(type) {
		case string, bool:
		default:
			return nil, "NotImplemented"
		}
	}
	return properties, ""
}

func (s *Service) url(path string) string { return s.server.URL + "/" + azurite.Account + "/" + path }

func (s *Service) minimal(name string, r row) []byte {
	return append(fmt.Appendf(nil, `{"odata.metadata":%q,`, s.url("$metadata#"+name+"/@Element")), r.json...)
}

// filters are those of the reaper.
var filters = regexp.MustCompile(`^PartitionKey (lt|eq) '((?:[^']|'')*)'(?: and RowKey lt '((?:[^']|'')*)')?$`)

func (s *Service) query(name string, query url.Values) answer {
	for parameter := range query {
		if !slices.Contains([]string{"$filter", "$format", "$top", "NextPartitionKey", "NextRowKey"}, parameter) {
			return failed("NotImplemented", "")
		}
	}
	filter := filters.FindStringSubmatch(query.Get("$filter"))
	if filter == nil || query.Get("$format") != "application/json;odata=fullmetadata" {
		return failed("NotImplemented", "")
	}
	top, err := strconv.Atoi(query.Get("$top"))
	fromPartition, err1 := base64.StdEncoding.DecodeString(query.Get("NextPartitionKey"))
	fromKey, err2 := base64.StdEncoding.DecodeString(query.Get("NextRowKey"))
	if err != nil || err1 != nil || err2 != nil || top < 1 || top > 1000 {
		return failed("InvalidInput", "")
	}
	a := answer{status: http.StatusOK, header: map[string]string{"Content-Type": "application/json;odata=fullmetadata"},
		body: fmt.Appendf(nil, `{"odata.metadata":%q,"value":[`, s.url("$metadata#Tables/@Element"))}
	rows, t := 0, s.tables[name]
	for _, partition := range slices.Sorted(maps.Keys(t)) {
		given := unquote(filter[2])
		if partition < string(fromPartition) || filter[1] == "lt" && partition >= given || filter[1] == "eq" && partition != given {
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(t[partition])) {
			if filter[3] != "" && key >= unquote(filter[3]) || partition == string(fromPartition) && key < string(fromKey) {
				continue
			}
			if rows == top {
				a.header["x-ms-continuation-NextPartitionKey"] = base64.StdEncoding.EncodeToString([]byte(partition))
				a.header["x-ms-continuation-NextRowKey"] = base64.StdEncoding.EncodeToString([]byte(key))
				a.body = append(a.body, "]}"...)
				return a
			}
			if rows > 0 {
				a.body = append(a.body, ',')
			}
			rows++
			address := fmt.Sprintf("%s(PartitionKey='%s',RowKey='%s')", name, partition, key)
			a.body = fmt.Appendf(a.body, `{"odata.type":%q,"odata.id":%q,"odata.editLink":%q,"Timestamp@odata.type":"Edm.DateTime",`, azurite.Account+"."+name, s.url(address), address)
			a.body = append(a.body, t[partition][key].json...)
		}
	}
	a.body = append(a.body, "]}"...)
	return a
}

// deletion is a row that is to be deleted if it still is as it was read.
type deletion struct {
	table          table
	partition, key string
	ifMatch        string
}

// check returns the code of the error where the row cannot be deleted.
func (d deletion) check() string {
	found, there := d.table[d.partition][d.key]
	switch {
	case d.ifMatch == "":
		return "InvalidInput"
	case !there:
		return "ResourceNotFound"
	case d.ifMatch != "*" && d.ifMatch != found.etag:
		return "UpdateConditionNotSatisfied"
	}
	return ""
}

func (d deletion) apply() {
	if delete(d.table[d.partition], d.key); len(d.table[d.partition]) == 0 {
		delete(d.table, d.partition)
	}
}

// batchRows are the requests in a batch: what is asked for, which row, and its ETag.
var batchRows = regexp.MustCompile(`(?m)^([A-Z]+) \S+/([A-Za-z0-9]+)\((\S+\))\S* HTTP/1\.1\r\n(?:[^\r\n]+\r\n)*?If-Match: ([^\r\n]+)\r\n`)

// batch deletes the rows of one partition that it names: all of them, or none.
func (s *Service) batch(body []byte) answer {
	requests := batchRows.FindAllStringSubmatch(string(body), -1)
	if n := len(requests); n == 0 || n > 100 || n != bytes.Count(body, []byte("Content-Type: application/http\r\n")) {
		return failed("InvalidInput", "")
	}
	var all []deletion
	part, parts := "204 No Content\r\nDataServiceVersion: 1.0;\r\n\r\n\r\n", len(requests)
	for i, r := range requests {
		keys, err := url.PathUnescape(r[3])
		row, t := rowKeys.FindStringSubmatch(keys), s.tables[r[2]]
		if err != nil || r[1] != http.MethodDelete || row == nil || t == nil {
			return failed("NotImplemented", "")
		}
		d := deletion{t, unquote(row[1]), unquote(row[2]), r[4]}
		if i > 0 && d.partition != all[0].partition || slices.ContainsFunc(all, func(other deletion) bool { return other.key == d.key }) {
			return failed("InvalidInput", "")
		}
		all = append(all, d)
		if code := d.check(); code != "" {
			f := failed(code, strconv.Itoa(i)+":")
			part, parts = fmt.Sprintf("%d %s\r\nContent-ID: %d\r\nDataServiceVersion: 3.0;\r\nContent-Type: application/json;odata=minimalmetadata;charset=utf-8\r\n\r\n%s\r\n",
				f.status, http.StatusText(f.status), i+1, f.body), 1
			all = nil
			break
		}
	}
	for _, d := range all {
		d.apply()
	}
	part = "--changesetresponse\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\nHTTP/1.1 " + part
	return answer{status: http.StatusAccepted, header: map[string]string{"Content-Type": "multipart/mixed; boundary=batchresponse"},
		body: []byte("--batchresponse\r\nContent-Type: multipart/mixed; boundary=changesetresponse\r\n\r\n" + strings.Repeat(part, parts) + "--changesetresponse--\r\n--batchresponse--\r\n")}
}

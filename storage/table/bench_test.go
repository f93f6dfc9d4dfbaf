package table

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// BenchmarkBatch is the cost of a full batch, with a server in this process that takes some of it.
func BenchmarkBatch(b *testing.B) {
	const part = "--changesetresponse_0\r\nContent-Type: application/http\r\n" +
		"Content-Transfer-Encoding: binary\r\n\r\nHTTP/1.1 204 No Content\r\n" +
		"X-Content-Type-Options: nosniff\r\nCache-Control: no-cache\r\n" +
		"Preference-Applied: return-no-content\r\nDataServiceVersion: 3.0;\r\n" +
		"ETag: W/\"datetime'2026-11-23T12%3A34%3A56.1234567Z'\"\r\n\r\n\r\n"
	response := "--batchresponse_0\r\nContent-Type: multipart/mixed; " +
		"boundary=changesetresponse_0\r\n\r\n" + strings.Repeat(part, MaxBatch) +
		"--changesetresponse_0--\r\n--batchresponse_0--\r\n"
	rows := serve(b, "", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, response)
	})
	var writes []Write
	for i := range MaxBatch {
		row := fmt.Appendf(nil, `{"PartitionKey":"a","RowKey":"f!alias%05d!`+
			`ABCDEFGHIJKLMNOPQRSTUVWXYZ-1","CountedFrom":"2026-11-23T12:34:56.1234567Z",`+
			`"CountedFrom@odata.type":"Edm.DateTime","Owner":"someone","Counts":"%s"}`, i,
			strings.Repeat("x", 500))
		writes = append(writes, Write{Kind: Upsert, Row: row})
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := rows.Batch(b.Context(), writes); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*MaxBatch), "ns/row")
}

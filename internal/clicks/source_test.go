package clicks

import (
	"strings"
	"testing"
)

func TestSource(t *testing.T) {
	long := strings.Repeat("a", 64)
	for query, want := range map[string]string{
		"": "", "a=b": "", "utm_source": "", "utm_source=": "", "utm_source=&utm_source=b": "",
		"utm_source=News": "news", "a=1&utm_source=a-b_c.9&utm_source=d": "a-b_c.9",
		"utm%5Fsource=q%72": "qr", "UTM_SOURCE=a": "", "xutm_source=a": "", "%zz=1&utm_source=a": "a",
		"utm_source=" + long: long, "utm_source=" + long + "a": Other, "utm_source=a+b": Other,
		"utm_source=a%2Bb": Other, "utm_source=%": Other, "utm_source=%C3%A4": Other,
		"utm_source=%2571": Other, "utm_source=(none)": Other, "utm_source=\u212a": Other, // the Kelvin sign
	} {
		if got := Source(query); got != want {
			t.Errorf("%.80q has the source %q, want %q", query, got, want)
		} else if got != "" && !IsName(Sources, got) {
			t.Errorf("%q is no name", got)
		}
	}
}

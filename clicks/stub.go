package clicks

import "net/netip"

type Agent struct {
	Bot                     bool
	Browser, System, Device string
}

func StripHost(s string) string { return s }
func ParseAgent(string) Agent   { return Agent{Browser: Other, System: Other, Device: Other} }
func Referrer(string) string    { return "(direct)" }
func Country(netip.Addr) string { return "(unknown)" }

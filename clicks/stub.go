package clicks

import "net/netip"

func Referrer(string) string    { return "(direct)" }
func Country(netip.Addr) string { return "(unknown)" }

package storage

// Keys keeps API keys in a table.
type Keys struct{}

func newKeys(t table, config Config, c *changes) *Keys { return &Keys{} }
func (k *Keys) forget(hash string)                     {}

package table

// TableURL returns where the tables are.
func (c Connection) TableURL() string { return c.tables }

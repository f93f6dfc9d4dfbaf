package azurite

import (
	"tiney/storage/table"
)

// Tables opens tables of the emulator, or of a proxy in front of it. It makes no call.
func Tables(connectionString string) (func(name string) table.Table, error) {
	setting := func(string) string { return connectionString }
	connection, err := table.ParseConnection(setting, table.TableService, "TABLE_CONNECTION")
	if err != nil {
		return nil, err
	}
	service, err := table.Open(connection, nil)
	return service.Table, err
}

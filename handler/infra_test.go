package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"tiney/internal/bicep"
	"tiney/storage"
)

// platformSettings are what the platform sets itself, or a developer on their own machine.
var platformSettings = []string{"FUNCTIONS_CUSTOMHANDLER_PORT", "HTTP_PLATFORM_PORT", "PORT", "LISTEN_ADDRESS", "WEBSITE_HOSTNAME", "WEBSITE_SITE_NAME", "WEBSITE_INSTANCE_ID"}

// plans have the settings that the platform reads on each, and no others may be there.
var plans = map[string][]string{
	"site-consumption": {"APPLICATIONINSIGHTS_AUTHENTICATION_STRING", "AzureWebJobsStorage__accountName", "AzureWebJobsStorage__clientId", "AzureWebJobsStorage__credential",
		"FUNCTIONS_EXTENSION_VERSION", "FUNCTIONS_WORKER_RUNTIME", "WEBSITE_CONTENTAZUREFILECONNECTIONSTRING", "WEBSITE_CONTENTSHARE", "WEBSITE_RUN_FROM_PACKAGE"},
	"site-web":  {"WEBSITE_RUN_FROM_PACKAGE"},
	"site-flex": {"APPLICATIONINSIGHTS_AUTHENTICATION_STRING", "AzureWebJobsStorage__accountName", "AzureWebJobsStorage__clientId", "AzureWebJobsStorage__credential"},
}

// connectionSettings are those of which readSettings reads one form or the other.
var connectionSettings = []string{"TABLE_CONNECTION", "GC_BLOB_LOCK_CONNECTION", "AzureWebJobsStorage"}

func isConnection(name string) bool {
	prefix, _, _ := strings.Cut(name, "__")
	return slices.Contains(connectionSettings, prefix)
}

// infra has the modules that make a site's settings out of main.bicep's.
type infra struct {
	common *bicep.File
	sites  map[string]*bicep.File // by the names of plans
}

// parseInfra reads several forms of main.bicep, and the modules once.
func parseInfra(mains ...string) ([]*bicep.File, infra, error) {
	names := slices.Sorted(maps.Keys(plans))
	paths := append(slices.Clone(mains), "../infra/modules/site-settings.bicep")
	for _, name := range names {
		paths = append(paths, "../infra/modules/"+name+".bicep")
	}
	files, err := bicep.Parse(paths...)
	if err != nil {
		return nil, infra{}, err
	}
	modules := infra{common: files[len(mains)], sites: map[string]*bicep.File{}}
	for i, name := range names {
		modules.sites[name] = files[len(mains)+1+i]
	}
	return files[:len(mains)], modules, nil
}

// compare returns where main.bicep, with the modules, does not give the handler the settings that it reads, with its
// own defaults and its own limits.
func (i infra) compare(main *bicep.File) (problems []string) {
	problem := func(format string, arguments ...any) {
		problems = append(problems, fmt.Sprintf(format, arguments...))
	}
	declared := main.Declared("var", "settings")
	site := i.common.Declared("resource", "appSettings")
	if declared == nil || site == nil {
		problem("no variable settings in %s, or no resource appSettings in %s", main.Path, i.common.Path)
		return problems
	}
	given := map[string]string{} // by all sites
	fromParam := map[string]*bicep.Declaration{}
	for _, property := range slices.Concat(declared.Value.Properties(), added(site.Body().Property("properties"))) {
		name, value := property.Key(), property.Children[1]
		if value.Type == "call_expression" && value.Child(0).String() == "string" {
			value = value.Child(1).Child(0)
		}
		switch param := main.Declared("param", value.String()); {
		case value.Literal():
			given[name] = value.String()
			if !isConnection(name) {
				problem("%s is not a parameter", name)
			}
		case param != nil && param.Value != nil:
			given[name] = rendered(param.Value)
			fromParam[name] = param
		case strings.HasSuffix(name, "__accountName"):
			given[name] = "account"
		case strings.HasSuffix(name, "__clientId"):
			given[name] = "00000000-0000-0000-0000-000000000000"
		case name == "BaseUrl":
			given[name] = "https://tiney.example"
		case name == "APPLICATIONINSIGHTS_CONNECTION_STRING":
			given[name] = "InstrumentationKey=00000000-0000-0000-0000-000000000000;IngestionEndpoint=https://ingestion.example/"
		default:
			problem("%s is set to something that this test does not know", name)
		}
	}

	// What is asked for, on each plan.
	asked := map[string]bool{}
	platform := map[string]map[string]string{
		"site-consumption": {"FUNCTIONS_CUSTOMHANDLER_PORT": "5000", "WEBSITE_HOSTNAME": "x.azurewebsites.net"},
		"site-flex":        {"FUNCTIONS_CUSTOMHANDLER_PORT": "5000", "WEBSITE_HOSTNAME": "x.azurewebsites.net"},
		"site-web":         {"HTTP_PLATFORM_PORT": "5000", "WEBSITE_HOSTNAME": "x.azurewebsites.net"},
	}
	read := func(name string, environments ...map[string]string) (settings, error) {
		s, err := readSettings(func(setting string) string {
			asked[setting] = true
			for _, environment := range append(environments, platform[name]) {
				if value, ok := environment[setting]; ok {
					return value
				}
			}
			return ""
		})
		// Two connections by identity are never equal; that there is one at all, readSettings has seen to.
		s.tables, s.lock = storage.Connection{}, storage.Connection{}
		return s, err
	}
	needed := map[string]string{} // what there is no default for
	for name, value := range given {
		if fromParam[name] == nil {
			needed[name] = value
		}
	}
	for _, name := range slices.Sorted(maps.Keys(i.sites)) {
		module := i.sites[name].Declared("module", "siteSettings")
		if module == nil {
			problem("no module siteSettings in %s", i.sites[name].Path)
			continue
		}
		own := map[string]string{}
		for _, property := range added(module.Body().Property("params").Property("settings")) {
			own[property.Key()] = property.Children[1].String()
		}
		if got := slices.Sorted(maps.Keys(own)); !slices.Equal(got, plans[name]) {
			problem("%s adds the settings %q, want %q", name, got, plans[name])
		}
		got, err := read(name, given, own)
		if err != nil {
			problem("%s: %v", name, err)
			continue
		}
		byDefault, err := read(name, needed)
		if err != nil {
			problem("%s without what has a default: %v", name, err)
		} else if !reflect.DeepEqual(got, byDefault) {
			problem("%s: the defaults give\n%+v\nand those of the code\n%+v", name, got, byDefault)
		}
	}

	// Nothing is missing, and nothing is there that nobody reads.
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		if _, ok := given[name]; !ok && !isConnection(name) && !slices.Contains(platformSettings, name) {
			problem("%s is not set", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !asked[name] && !isConnection(name) {
			problem("%s is set, and the handler does not read it", name)
		}
	}

	// A parameter takes what the code takes, and nothing else.
	for _, name := range slices.Sorted(maps.Keys(fromParam)) {
		param := fromParam[name]
		try := func(value string, want bool) {
			_, err := read("site-web", map[string]string{name: value}, needed)
			if (err == nil) != want {
				problem("%s=%s: main.bicep takes it: %t; the handler: %v", name, value[:min(len(value), 70)], want, err)
			}
		}
		switch {
		case param.Of == "bool":
			try("True", true)
			try("False", true)
		case param.Of == "int":
			least, err1 := strconv.ParseInt(limit(param, "minValue"), 10, 64)
			most, err2 := strconv.ParseInt(limit(param, "maxValue"), 10, 64)
			if err1 != nil || err2 != nil {
				problem("%s has no @minValue, or no @maxValue", name)
				continue
			}
			try(fmt.Sprint(least), true)
			try(fmt.Sprint(most), true)
			try(fmt.Sprint(least-1), false)
			try(fmt.Sprint(most+1), false)
		case param.Decorators["allowed"] != nil:
			for _, value := range param.Decorators["allowed"].Child(0).Children {
				try(value.String(), true)
			}
			try("something else", false)
		default:
			least, err1 := strconv.Atoi(limit(param, "minLength"))
			most, err2 := strconv.Atoi(limit(param, "maxLength"))
			if err1 != nil || err2 != nil {
				problem("%s has no @minLength, or no @maxLength", name)
				continue
			}
			try(strings.Repeat("a", least), true)
			try(strings.Repeat("a", most), true)
			try(strings.Repeat("a", most+1), false)
			if least > 1 { // an empty value is the default
				try(strings.Repeat("a", least-1), false)
			}
		}
	}
	return problems
}

// added are the properties that union(…, {…}) adds.
func added(union *bicep.Node) []*bicep.Node { return union.Child(1).Child(1).Properties() }

// rendered is a parameter's value as string() writes it: Azure writes booleans with a capital letter.
func rendered(value *bicep.Node) string {
	switch text := value.String(); text {
	case "true":
		return "True"
	case "false":
		return "False"
	default:
		return text
	}
}

func limit(param *bicep.Declaration, decorator string) string {
	return param.Decorators[decorator].Child(0).String()
}

// TestInfraGivesTheSettings also shows that the comparison finds something: one thing at a time is made wrong.
func TestInfraGivesTheSettings(t *testing.T) {
	const path = "../infra/main.bicep"
	right, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct{ from, to, problem string }{
		{"", "", ""},
		{"  GC_PAGE_SIZE: string(gcPageSize)\n", "", "GC_PAGE_SIZE is not set"},
		{"  GC_PAGE_SIZE: ", "  GC_PAGESIZE: ", "GC_PAGESIZE is set, and the handler does not read it"},
		{"DefaultTtlDays: string(defaultTtlDays)", "DefaultTtlDays: string(maxTtlDays)", "the defaults give"},
		{"ShortUrlsExpiryIndex'", "ShortUrlsExpiryIndexes'", "the defaults give"},
		{"param cacheEnabled bool = true", "param cacheEnabled bool = false", "the defaults give"},
		{"param aliasLength int = 6", "param aliasLength int = 3", "ALIAS_LENGTH must be"},
		{"@minValue(4)", "@minValue(5)", "ALIAS_LENGTH=4: main.bicep takes it: false; the handler: <nil>"},
		{"@maxValue(3153600000)", "@maxValue(3153600001)", "MAX_TTL_SECONDS=3153600001: main.bicep takes it: true"},
		{"@minLength(3)", "@minLength(2)", "SHORTURL_TABLE_NAME=aa: main.bicep takes it: true"},
		{"@maxLength(256)", "@maxLength(255)", "GC_BLOB_LOCK_BLOB=aaa"},
		{"@minValue(1)\n@maxValue(1800)\n", "", "GC_MAX_SECONDS has no @minValue"},
		{"@minLength(1)\n@maxLength(256)\n", "", "GC_BLOB_LOCK_BLOB has no @minLength"},
		{"  'debug'\n", "  'trace'\n", "LOG_LEVEL=trace: main.bicep takes it: true"},
		{"  LOG_LEVEL: logLevel\n", "  LOG_LEVEL: 'info'\n", "LOG_LEVEL is not a parameter"},
		{"  LOG_LEVEL: logLevel\n", "  LOG_LEVEL: suffix\n", "LOG_LEVEL is set to something"},
		{"  TELEMETRY_CLIENT_IP: string(telemetryClientIp)\n", "", "TELEMETRY_CLIENT_IP is not set"},
		{"@minValue(1)\n@maxValue(100)\n", "", "TELEMETRY_SAMPLING_PERCENT has"},
		{"TABLE_CONNECTION__accountName", "TABLE_CONNECTION__account", "TABLE_CONNECTION__account is set to something"},
		{"  GC_BLOB_LOCK_CONNECTION__credential: 'managedidentity'\n", "", "needs GC_BLOB_LOCK_CONNECTION__credential"},
	}
	var mains []string
	for _, test := range tests {
		main := strings.Replace(string(right), test.from, test.to, 1)
		if main == string(right) && test.from != "" {
			t.Errorf("%q is not in %s", test.from, path)
		}
		mains = append(mains, filepath.Join(t.TempDir(), "main.bicep"))
		if err := os.WriteFile(mains[len(mains)-1], []byte(main), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	files, modules, err := parseInfra(mains...)
	if err != nil {
		t.Fatal(err)
	}
	for i, test := range tests {
		problems := strings.Join(modules.compare(files[i]), "\n")
		if !strings.Contains(problems, test.problem) || (test.problem == "") != (problems == "") {
			t.Errorf("%q for %q: want %q, found\n%s", test.to, test.from, test.problem, problems)
		}
	}
}

package infra_test

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"tiney/handler/app"
	"tiney/storage/table"
)

// parse returns the settings that the handler reads from an environment. It clears the connections,
// since two with an identity are never equal.
func parse(getenv func(string) string) (any, error) {
	s, err := app.ReadSettings(getenv)
	s.Tables, s.Lock.Connection = table.Connection{}, table.Connection{}
	if s.Telemetry != nil {
		s.Telemetry.Credential = nil
	}
	return s, err
}

// platformSettings come from the platform itself, or from developers on their own machines.
var platformSettings = []string{"FUNCTIONS_CUSTOMHANDLER_PORT", "HTTP_PLATFORM_PORT", "PORT",
	"LISTEN_ADDRESS", "METRICS_ADDRESS", "WEBSITE_HOSTNAME", "WEBSITE_SITE_NAME", "WEBSITE_INSTANCE_ID"}

// plans are the modules of the sites. Each has the port variable that the platform sets, the
// settings from main.bicep, and the settings that the module adds. start and end are the lines
// around the latter.
var plans = []struct{ module, port, settings, start, end, adds string }{
	{"consumption", "FUNCTIONS_CUSTOMHANDLER_PORT", "union(settings, hostSettings)",
		"\nvar allSettings = union(settings, hostStorageSettings, {", "})",
		"FUNCTIONS_EXTENSION_VERSION " +
			"FUNCTIONS_WORKER_RUNTIME WEBSITE_CONTENTAZUREFILECONNECTIONSTRING " +
			"WEBSITE_CONTENTSHARE WEBSITE_RUN_FROM_PACKAGE"},
	// Its host reaches its storage by key or by identity.
	{"consumption", "FUNCTIONS_CUSTOMHANDLER_PORT", "union(settings, hostSettings)",
		"\nvar hostStorageSettings = hostStorageAccess == 'key'\n  ? {", "    }",
		"AzureWebJobsStorage"},
	{"consumption", "FUNCTIONS_CUSTOMHANDLER_PORT", "union(settings, hostSettings)",
		"      AzureWebJobsStorage: hostConnection\n    }\n  : {", "    }",
		"AzureWebJobsStorage__accountName AzureWebJobsStorage__clientId " +
			"AzureWebJobsStorage__credential"},
	{"flex", "FUNCTIONS_CUSTOMHANDLER_PORT", "union(settings, hostSettings)",
		"settings: union(settings, {", "    })",
		"AzureWebJobsStorage__accountName AzureWebJobsStorage__clientId " +
			"AzureWebJobsStorage__credential"},
	{"web", "HTTP_PLATFORM_PORT", "settings", "\n        : {\n", "          }",
		"WEBSITE_RUN_FROM_PACKAGE"},
	// This one is in a container.
	{"web", "PORT", "settings", "settings: union(\n      settings,\n      isContainer\n        ? {",
		"          }",
		"GOMEMLIMIT WEBSITES_PORT"},
}

// hostSettings are the settings of the plans with the Functions host, as main.bicep writes them.
var hostSettings = map[string]string{"AzureWebJobsDisableHomepage": "'true'",
	"AzureWebJobsStorage__retry__maxRetries": "'40'",
	"AzureWebJobsStorage__retry__maxDelay":   "'00:00:05'"}

// addressHeader is the line of main.bicep that chooses the header of the client's address. It
// chooses a header that a client cannot set.
const addressHeader = "\nvar addressHeader = !empty(clientAddressHeader) ? clientAddressHeader : " +
	"hasFrontDoor ? 'X-Azure-SocketIP' : 'CLIENT-IP'\n"

// hostHeader is the line of main.bicep that chooses the header of the client's host. TestDomains
// checks that Front Door overwrites it.
const hostHeader = "\nvar hostHeader = !empty(domainHeader) ? domainHeader : " +
	"hasFrontDoor ? 'X-Tiney-Host' : ''\n"

// tableCopy is the line of main.bicep that chooses whether the tables' copy is read. It is read if
// there is a readable one.
const tableCopy = "\nvar tableCopy = !empty(tableSecondary)\n  ? tableSecondary\n" +
	"  : empty(tableAccountName) && startsWith(dataRedundancy, 'Standard_RA') ? 'true' : ''\n"

// ofForm are right values of settings that have a form, not just a length.
var ofForm = map[string]string{"OIDC_ISSUER": "https://login.example/tenant/v2.0",
	"HOME_URL":    "https://example.com/",
	"UNKNOWN_URL": "https://example.com/find?alias={alias}",
	"GONE_URL":    "http://example.com:8080/{domain}/#{alias}", "EXTRA_SCHEMES": "MailTo, tel sms",
	"OIDC_SCOPES": "groups openid"}

// signIn are two settings that need each other.
var signIn = map[string]string{"OIDC_ISSUER": "https://login.example", "OIDC_CLIENT_ID": "an-app"}

// isConnection reports whether a setting is one form of a connection. The handler reads one form or
// another.
func isConnection(name string) bool {
	prefix, _, _ := strings.Cut(name, "__")
	return slices.Contains([]string{"TABLE_CONNECTION", "GC_BLOB_LOCK_CONNECTION",
		"AzureWebJobsStorage"}, prefix)
}

// param is a parameter of main.bicep, with the text of its decorators, its type and its default.
type param struct{ decorators, of, byDefault string }

// paramsOf returns the parameters of main.bicep by name.
func paramsOf(main string) map[string]param {
	params := map[string]param{}
	for _, found := range paramText.FindAllStringSubmatch(main, -1) {
		params[found[2]] = param{found[1], found[3], strings.Trim(found[4], "'")}
	}
	return params
}

// limit returns the number in a decorator.
func (p param) limit(decorator string) (int, error) {
	_, text, _ := strings.Cut(p.decorators, "@"+decorator+"(")
	text, _, _ = strings.Cut(text, ")")
	n, err := strconv.Atoi(text)
	if err != nil {
		err = fmt.Errorf("has no @%s: %w", decorator, err)
	}
	return n, err
}

var (
	paramText   = regexp.MustCompile(`(?m)^((?:(?:@|  |\]).*\n)*)param (\w+) (\w+) = (.*)$`)
	settingLine = regexp.MustCompile(`(?m)^ +(\w+): (.*)$`)
	product     = regexp.MustCompile(`^(\w+) \* (\d+)$`)
	otherLine   = regexp.MustCompile(`(?m)^ +[^ \w/].*$`) // neither a setting nor a comment
)

// settingsIn returns the properties of the object that begins at start and ends before the line
// end. Each property is on one line.
func settingsIn(text, start, end string) map[string]string {
	_, text, ok := strings.Cut(text, start)
	text, _, closed := strings.Cut(text, "\n"+end+"\n")
	properties := map[string]string{}
	for _, found := range settingLine.FindAllStringSubmatch(text, -1) {
		properties[found[1]] = found[2]
	}
	if !ok || !closed || otherLine.MatchString(text) {
		return map[string]string{}
	}
	return properties
}

// compare returns the differences between main.bicep, with its modules, and the handler. main.bicep
// must give the handler the settings that it reads, with its own defaults and limits, and give the
// Functions host the settings that it needs. modules are the texts of site-*.bicep.
func compare(main string, modules map[string]string) (problems []string) {
	problem := func(format string, arguments ...any) {
		problems = append(problems, fmt.Sprintf(format, arguments...))
	}
	params, used := paramsOf(main), map[string]param{} // used: by setting
	given := map[string]string{}                       // the settings of all sites
	settings := settingsIn(main, "\nvar settings = {", "}")
	maps.Copy(settings, settingsIn(modules["settings"], "properties: union(settings, {", "  })"))
	for name, value := range settings {
		p, ok := params[strings.TrimSuffix(strings.TrimPrefix(value, "string("), ")")]
		switch {
		case ok:
			used[name], given[name] = p, p.byDefault
			if name == "SHORTEN_ACCESS" && p.byDefault == "owners" {
				given[name] = "anyone" // the one default that differs
			}
			// The default may be a multiple of another parameter's.
			if times := product.FindStringSubmatch(p.byDefault); times != nil {
				n, err1 := strconv.Atoi(params[times[1]].byDefault)
				m, err2 := strconv.Atoi(times[2])
				if err1 != nil || err2 != nil {
					problem("%s has the default %s", name, p.byDefault)
				}
				given[name] = strconv.Itoa(n * m)
			}
			if p.of == "bool" { // the form that string() writes
				given[name] = strings.ToUpper(p.byDefault[:1]) + p.byDefault[1:]
			}
		case isConnection(name) && strings.HasPrefix(value, "'"):
			given[name] = strings.Trim(value, "'")
		case strings.HasSuffix(name, "__accountName"), strings.HasSuffix(name, "__clientId"):
			given[name] = "account"
		case name == "CLIENT_ADDRESS_HEADER" && strings.Contains(main, addressHeader):
			given[name] = "CLIENT-IP"
		case name == "TABLE_SECONDARY" && strings.Contains(main, tableCopy),
			name == "DOMAIN_HEADER" && strings.Contains(main, hostHeader),
			name == "DOMAINS" && value == "join(domains, ',')":
			given[name] = ""
		case name == "APPLICATIONINSIGHTS_AUTHENTICATION_STRING" &&
			value == "'ClientId=${identity.properties.clientId};Authorization=AAD'":
			given[name] = "ClientId=an-id;Authorization=AAD"
		case name == "OTHER_HOSTS" && value == "hasFrontDoor ? edge!.outputs.endpointHostName : ''":
			given[name] = "tiney.azurefd.net"
		case name == "BaseUrl":
			given[name] = "https://tiney.example"
		case name == "APPLICATIONINSIGHTS_CONNECTION_STRING":
			given[name] = "InstrumentationKey=00000000-0000-0000-0000-000000000000;" +
				"IngestionEndpoint=https://ingestion.example/"
		default:
			problem("%s is no parameter, nor something else that this test knows: %s", name, value)
		}
	}
	if got := settingsIn(main, "\nvar hostSettings = {", "}"); !maps.Equal(got, hostSettings) {
		problem("hostSettings are %q, want %q", got, hostSettings)
	}

	asked := map[string]bool{}
	read := func(port string, environments ...map[string]string) (any, error) {
		environments = append(environments, map[string]string{port: "5000",
			"WEBSITE_HOSTNAME": "x.azurewebsites.net"})
		return parse(func(setting string) string {
			asked[setting] = true
			for _, environment := range environments {
				if value, ok := environment[setting]; ok {
					return value
				}
			}
			return ""
		})
	}
	needed := maps.Clone(given) // without the settings that have defaults in the handler
	maps.DeleteFunc(needed, func(name, _ string) bool { _, ok := used[name]; return ok })
	// Azure's front end is there even without the host, but the handler does not know that.
	needed["CLIENT_ADDRESS_HOPS"] = "1"
	hosted := map[string]string{}
	for name, value := range hostSettings {
		hosted[name] = strings.Trim(value, "'")
	}
	for _, plan := range plans {
		own := settingsIn(modules[plan.module], plan.start, plan.end)
		if got := slices.Sorted(maps.Keys(own)); !slices.Equal(got, strings.Fields(plan.adds)) {
			problem("%s adds the settings %q, want %q", plan.module, got, plan.adds)
		}
		_, call, _ := strings.Cut(main, "\nmodule "+plan.module+" ")
		if call, _, _ = strings.Cut(call, "\n]\n"); !strings.Contains(call, "\n      settings: "+
			plan.settings+"\n") {
			problem("%s does not get %s", plan.module, plan.settings)
		}
		host := map[string]string{}
		if strings.Contains(plan.settings, "hostSettings") {
			host = hosted
		}
		got, err := read(plan.port, given, own, host)
		if err != nil {
			problem("%s: %v", plan.module, err)
			continue
		}
		byDefault, err := read(plan.port, needed, host)
		if err != nil {
			problem("%s without what has a default: %v", plan.module, err)
		} else if !reflect.DeepEqual(got, byDefault) {
			problem("%s: the defaults give\n%+v\nand those of the code\n%+v", plan.module, got,
				byDefault)
		}
	}
	// The host's settings must not change a connection that is a connection string.
	if _, err := read("PORT", map[string]string{"AzureWebJobsStorage": "UseDevelopmentStorage=true",
		"BaseUrl": "https://tiney.example"}, hosted); err != nil {
		problem("with hostSettings: %v", err)
	}

	for name := range asked {
		if _, ok := given[name]; !ok && hosted[name] == "" && !isConnection(name) &&
			!slices.Contains(platformSettings, name) {
			problem("%s is not set", name)
		}
	}
	for name := range given {
		if !asked[name] && !isConnection(name) {
			problem("%s is set, and the handler does not read it", name)
		}
	}

	// A parameter must accept exactly the values that the code accepts.
	for name, p := range used {
		try := func(value string, want bool) {
			if _, err := read("PORT", map[string]string{name: value}, signIn,
				needed); (err == nil) != want {
				problem("%s=%s: main.bicep takes it: %t; the handler: %v", name,
					value[:min(len(value), 70)], want, err)
			}
		}
		low, high, text := "minLength",
			"maxLength", func(n int) string { return strings.Repeat("abcdefgh", n/8+1)[:n] }
		if p.of == "int" {
			low, high, text = "minValue", "maxValue", strconv.Itoa
		}
		least, err1 := p.limit(low)
		optional := p.byDefault == "" // no minimum length could allow this default
		if optional {
			err1 = nil
		}
		most, err2 := p.limit(high)
		switch {
		case p.of == "bool":
			try("True", true)
			try("False", true)
		case strings.Contains(p.decorators, "@allowed(["):
			for _, value := range regexp.MustCompile(`(?m)^  '(.*)'$`).FindAllStringSubmatch(
				p.decorators, -1) {
				try(value[1], true)
			}
			try("something else", false)
		case ofForm[name] != "":
			try(ofForm[name], true)
		case err1 != nil || err2 != nil:
			problem("%s %v, %v", name, err1, err2)
		default:
			try(text(most), true)
			try(text(most+1), false)
			if !optional {
				try(text(least), true)
			}
			if p.of == "int" || least > 1 { // an empty text is the default
				try(text(least-1), false)
			}
		}
	}
	return problems
}

// TestInfraSettings compares main.bicep with the handler. It also makes one thing wrong at a time,
// and checks that the comparison finds it.
func TestInfraSettings(t *testing.T) {
	texts := map[string]string{}
	for name, file := range map[string]string{"main": "main", "settings": "modules/site-settings",
		"consumption": "modules/site-consumption",
		"flex":        "modules/site-flex", "web": "modules/site-web"} {
		texts[name] = read(t, file+".bicep")
	}
	if problems := compare(texts["main"], texts); len(problems) > 0 {
		t.Errorf("infra/main.bicep and the handler differ:\n%s", strings.Join(problems, "\n"))
	}
	for _, test := range []struct{ from, to, problem string }{
		{"  GC_PAGE_SIZE: string(gcPageSize)\n", "", "GC_PAGE_SIZE is not set"},
		{"  GC_PAGE_SIZE: ", "  GC_PAGESIZE: ",
			"GC_PAGESIZE is set, and the handler does not read it"},
		{"MaxTtlDays: string(maxTtlDays)", "MaxTtlDays: string(defaultTtlDays)",
			"the defaults give"},
		{"@minValue(4)", "@minValue(5)",
			"ALIAS_LENGTH=4: main.bicep takes it: false; the handler: <nil>"},
		{"@minValue(1)\n@maxValue(1800)\n", "", "GC_MAX_SECONDS has no @minValue"},
		{"= defaultTtlDays * 86400", "= defaultTtlDays * 3600", "the defaults give"},
		{"@maxLength(1024)", "@maxLength(1025)", "ADMIN_KEY=abcd"},
		{"param shortenAccess string = 'owners'", "param shortenAccess string = 'nobody'",
			"SHORTEN_ACCESS"},
		{"  'debug'\n", "  'trace'\n", "LOG_LEVEL=trace: main.bicep takes it: true"},
		{"  LOG_LEVEL: logLevel\n", "  LOG_LEVEL: 'info'\n", "LOG_LEVEL is no parameter"},
		{"TABLE_CONNECTION__accountName", "TABLE_CONNECTION__account",
			"TABLE_CONNECTION__account is no parameter"},
		{"  GC_BLOB_LOCK_CONNECTION__credential: 'managedidentity'\n", "",
			"needs GC_BLOB_LOCK_CONNECTION__credential"},
		{"'X-Azure-SocketIP'", "'X-Azure-ClientIP'", "CLIENT_ADDRESS_HEADER is no parameter"},
		{"param clientAddressHops int = 1", "param clientAddressHops int = 0", "the defaults give"},
		{"  AzureWebJobsDisableHomepage: 'true'\n", "", "hostSettings are"},
		{"  DOMAINS: join(domains, ',')\n", "  DOMAINS: join(hosts, ',')\n",
			"DOMAINS is no parameter"},
		{"'X-Tiney-Host' : ''", "'X-Forwarded-Host' : ''", "DOMAIN_HEADER is no parameter"},
		{"  ALIAS_CASE: aliasCase\n", "", "ALIAS_CASE is not set"},
		{"  GONE_URL: goneUrl\n", "  GONE_URL: unknownUrl + 'x'\n", "GONE_URL is no parameter"},
		{"  'insensitive'\n", "  'any'\n", "ALIAS_CASE=any: main.bicep takes it: true"},
		{"settings: union(settings, hostSettings)", "settings: settings",
			"consumption does not get union(settings, hostSettings)"},
	} {
		main := strings.Replace(texts["main"], test.from, test.to, 1)
		problems := strings.Join(compare(main, texts), "\n")
		if main == texts["main"] || !strings.Contains(problems, test.problem) {
			t.Errorf("%q for %q: want %q, found\n%s", test.to, test.from, test.problem, problems)
		}
	}
}

// settingRow matches a row of docs/settings.md: the setting, its default and, in parentheses, its
// range.
var settingRow = regexp.MustCompile("(?m)^\\| `(\\w+)` \\| ([^|(]*?) ?(?:\\(([^|]*)\\) )?\\|")

// TestDocumentedSettings checks docs/settings.md against the code. It must have one row for each
// setting, with its default, and with the limits of numbers.
func TestDocumentedSettings(t *testing.T) {
	asked := map[string]bool{}
	with := func(name, value string) (any, error) {
		return parse(func(setting string) string {
			asked[setting] = true
			switch setting {
			case name:
				return value
			case "AzureWebJobsStorage":
				return "UseDevelopmentStorage=true"
			// Without it, the telemetry's settings would change nothing.
			case "APPLICATIONINSIGHTS_CONNECTION_STRING":
				return "InstrumentationKey=00000000-0000-0000-0000-000000000000;" +
					"IngestionEndpoint=https://ingestion.example/"
			}
			return ""
		})
	}
	want, err := with("", "")
	if err != nil {
		t.Fatal(err)
	}
	limits := regexp.MustCompile(`^(\d+)–(\d+)$`)
	documented := map[string]bool{}
	for _, row := range settingRow.FindAllStringSubmatch(read(t, "../docs/settings.md"), -1) {
		name, byDefault, of := row[1], row[2], limits.FindStringSubmatch(row[3])
		documented[name] = true
		byDefault, _, _ = strings.Cut(byDefault, ",")
		byDefault = strings.Trim(byDefault, "`")
		if byDefault != "none" && byDefault != "AzureWebJobsStorage" &&
			byDefault != "DefaultTtlDays" && !strings.HasPrefix(byDefault, "set by ") {
			if got, err := with(name, byDefault); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("the default of %s is not %s: %v", name, byDefault, err)
			}
		}
		if of == nil {
			continue
		}
		least, _ := strconv.Atoi(of[1])
		most, _ := strconv.Atoi(of[2])
		for value, valid := range map[int]bool{least - 1: false, least: true, most: true, most +
			1: false} {
			if _, err := with(name, strconv.Itoa(value)); (err == nil) != valid {
				t.Errorf("%s=%d, documented as %s: %v", name, value, row[3], err)
			}
		}
	}
	for name := range asked {
		if !documented[name] && !strings.Contains(name, "__") { // parts of connections
			t.Errorf("docs/settings.md has no row for %s", name)
		}
	}
	for name := range documented {
		if !asked[name] {
			t.Errorf("docs/settings.md has a row for %s, which the handler does not read", name)
		}
	}
}

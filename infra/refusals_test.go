package infra_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// bicepFunctions are the Bicep functions that main.bicep uses to refuse values, written in
// JavaScript. https://learn.microsoft.com/azure/azure-resource-manager/bicep/bicep-functions
// describes them.
const bicepFunctions = `
const concat = (...lists) => lists.flat();
const union = (a, b) => [...new Set([...a, ...b])];
const intersection = (a, b) => a.filter((one) => b.includes(one));
const contains = (all, one) => all.includes(one);
const length = (all) => all.length;
const empty = (all) => all.length === 0;
const range = (from, n) => Array.from({ length: n }, (_, i) => from + i);
const first = (all) => all[0];
const last = (all) => all.at(-1);
const take = (all, n) => all.slice(0, n);
const substring = (text, at, n) => text.slice(at, at + n);
const map = (all, f) => all.map((one) => f(one));
const filter = (all, f) => all.filter((one) => f(one));
const join = (all, by) => all.join(by);
const split = (text, by) =>
  [by].flat().reduce((parts, one) => parts.flatMap((part) => part.split(one)), [text]);
const toLower = (text) => text.toLowerCase();
const trim = (text) => text.trim();
const replace = (text, from, to) => text.replaceAll(from, to);
const startsWith = (text, start) => toLower(text).startsWith(toLower(start));
const endsWith = (text, end) => toLower(text).endsWith(toLower(end));
`

// refuse returns the refusals of main.bicep for each set of parameters. All other parameters have
// their defaults. The part of main.bicep that decides is also valid JavaScript, so refuse runs it
// as such.
func refuse(t *testing.T, main string, params map[string]param, cases []map[string]any) [][]string {
	t.Helper()
	byDefault := map[string]any{"location": "canadacentral"}
	for name, p := range params {
		switch p.of {
		case "string":
			byDefault[name] = cmp.Or(byDefault[name], any(p.byDefault))
		case "bool":
			byDefault[name] = p.byDefault == "true"
		case "array":
			byDefault[name] = []string{}
		}
	}
	_, decides, begins := strings.Cut(main, "\nvar digits = ")
	const use = "\nvar prefix = empty(refused) ? toLower(name) : fail(join(refused, '; '))\n"
	decides, _, ends := strings.Cut(decides, use)
	given, err1 := json.Marshal(cases)
	usual, err2 := json.Marshal(byDefault)
	if err := errors.Join(err1, err2); err != nil || !begins || !ends {
		t.Fatalf("main.bicep does not refuse as this test knows it (%v)", err)
	}
	cmd := exec.CommandContext(t.Context(), "node", "-")
	cmd.Stdin = strings.NewReader(fmt.Sprintf(`%s
const usual = %s;
function refuse({ %s }) {
var digits = %s
return refused;
}
console.log(JSON.stringify(%s.map((one) => refuse({ ...usual, ...one }))));`, bicepFunctions, usual,
		strings.Join(slices.Sorted(maps.Keys(byDefault)), ", "), decides, given))
	var says [][]string
	out, err := cmd.CombinedOutput()
	if err == nil {
		err = json.Unmarshal(out, &says)
	}
	if err != nil || len(says) != len(cases) {
		t.Fatalf("%v: %s", err, out)
	}
	return says
}

// listed returns the members of a setting that is a list.
func listed(value string) []string {
	return strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ' ' })
}

// takes reports whether the decorators and the type of a parameter allow a value.
func (p param) takes(value string) bool {
	n, least, most := len(value), "minLength", "maxLength"
	if p.of == "int" {
		var err error
		if n, err = strconv.Atoi(value); err != nil {
			return false
		}
		least, most = "minValue", "maxValue"
	}
	if p.of == "array" {
		n = len(listed(value))
	}
	low, err1 := p.limit(least)
	high, err2 := p.limit(most)
	_, allowed, limited := strings.Cut(p.decorators, "@allowed([")
	return (err1 != nil || n >= low) && (err2 != nil || n <= high) &&
		(!limited || strings.Contains(allowed, "  '"+value+"'\n")) &&
		(p.of != "bool" || value == "True" || value == "False")
}

// TestRefusals checks that no deployment sets a value that the handler refuses, or a switch that
// its plan ignores.
func TestRefusals(t *testing.T) {
	main := read(t, "main.bicep")
	params := paramsOf(main)
	parameterOf := map[string]string{"BaseUrl": "baseUrl",
		"CLIENT_ADDRESS_HEADER":         "clientAddressHeader",
		"DOMAINS":                       "domains",
		"DOMAIN_HEADER":                 "domainHeader",
		"TABLE_SECONDARY":               "tableSecondary",
		"TABLE_CONNECTION__accountName": "tableAccountName"}
	for setting, value := range settingsIn(main, "\nvar settings = {", "}") {
		name := strings.TrimSuffix(strings.TrimPrefix(value, "string("), ")")
		if params[name].of != "" {
			parameterOf[setting] = name
		}
	}
	type values = map[string]string
	handler := func(settings values) error {
		_, err := parse(func(name string) string {
			return cmp.Or(settings[name], values{"BaseUrl": "https://tiney.example",
				"TABLE_CONNECTION__accountName":        "account",
				"GC_BLOB_LOCK_CONNECTION__accountName": "account"}[name])
		})
		return err
	}
	var cases []map[string]any
	add := func(settings values) (byType bool) {
		given := map[string]any{}
		for setting, value := range settings {
			p, ok := params[parameterOf[setting]]
			if !ok {
				t.Fatalf("%s has no parameter", setting)
			}
			switch byType = byType || !p.takes(value); p.of {
			case "string":
				given[parameterOf[setting]] = value
			case "array":
				given[parameterOf[setting]] = listed(value)
			}
		}
		cases = append(cases, given)
		return byType
	}

	var hundred []string
	for i := range 100 {
		hundred = append(hundred, fmt.Sprintf("d%d.example.com", i))
	}

	// These values are right for the handler, for the decorators and, below, for main.bicep.
	right := []values{{}, {"ADMIN_KEY": "32-characters-that-are-no-secret"},
		{"ADMIN_KEY": strings.Repeat(`!"#$%&'()*+,-./:;<=>?@[\]^_{|}~`+"`Aa0", 29)},
		{"BaseUrl": "https://bücher.example:8443/s/"}, {"BaseUrl": "HTTP://tiney.example"},
		{"TABLE_SECONDARY": "True"}, {"TABLE_SECONDARY": "https://copy.example/"},
		{"GC_BLOB_LOCK_CONTAINER": "a-b-9"}, {"GC_BLOB_LOCK_BLOB": "A.b_c-9"},
		{"GC_BLOB_LOCK_BLOB": "b"}, {"SHORTURL_TABLE_NAME": "Links9"},
		{"CLIENT_ADDRESS_HEADER": "X-Real_IP!#$%&'*+.^`|~"},
		{"OIDC_ISSUER": "https://login.example/~t/v2.0", "OIDC_CLIENT_ID": "an-app"},
		{"OIDC_GROUPS_CLAIM": "https://e.org/~groups"}, {"OIDC_SCOPES": "openid"},
		{"OIDC_SCOPES": "Groups openid api://x/.default?a=[b]"},
		{"OIDC_API_AUDIENCE": "an api://x"}, {"OIDC_API_SCOPE": "api://x/Links.Write"},
		{"OIDC_SUBJECT_CLAIM": "oid"},
		{"OIDC_ADMIN_ROLE": "link admins"}, {"CLICKS": "off"}, {"ALIAS_LENGTH": "4"},
		{"PUBLIC_STATS": "False"}, {"ALIAS_CASE": "insensitive"}, {"DOMAINS_ACCESS": "owners"},
		{"DOMAINS": "Go.example.com,xn--bcher-kva.example 9.a-b.co"},
		{"DOMAINS": strings.Join(hundred, ",")}, {"DOMAIN_HEADER": "X-Forwarded-Host"},
		{"EXTRA_SCHEMES": "MailTo, tel,sms ms-teams,web+x"}, {"HOME_URL": "HTTP://example.com"},
		{"HOME_URL": "https://example.com:8443/{domain}?q=a@b#c"},
		{"UNKNOWN_URL": "https://example.com?alias={alias}", "BaseUrl": "https://tiney.example/s"},
		{"GONE_URL": "https://example.com/{domain}/{alias}", "DOMAINS": "go.example.com"}}
	for _, settings := range right {
		if err := handler(settings); err != nil || add(settings) {
			t.Errorf("%q: the handler says %v, and main.bicep may not take it", settings, err)
		}
	}
	cases = append(cases, []map[string]any{{"plan": "FC1", "privateNetwork": true,
		"zoneRedundant": true},
		{"plan": "P1v3", "zoneRedundant": true},
		{"plan": "B1", "image": "registry.example/tiney:1"},
		{"plan": "FC1", "siteUpdateStrategy": "RollingUpdate", "packagesUrl": "https://example.com/1"},
		{"hostStorageKey": "key2"}, {"hostStorageAccess": "key", "hostStorageKey": "key2"},
		{"hostStorageAccess": "identity"}, {"hostStorageAccess": "identity", "plan": "FC1"},
		{"frontDoorLogs": true, "frontDoor": "Standard_AzureFrontDoor"},
		{"plan": "F1", "customDomain": "go.example.com", "frontDoor": "Standard_AzureFrontDoor"},
		{"plan": "B1", "customDomain": "go.example.com"},
		{"plan": "F1", "domains": hundred[:1], "frontDoor": "Standard_AzureFrontDoor"},
		{"customDomain": "go.example.com", "baseUrl": "https://go.example.com"},
		{"plan": "F1", "domains": hundred[:1], "bindDomains": false},
		{"customDomain": "go.example.com", "domains": hundred},
		{"customDomain": "go.example.com", "domains": hundred,
			"frontDoor": "Premium_AzureFrontDoor"},
		{"domains": []string{"a-b.example.com", "a.b.example.com"}},
		{"domains": []string{strings.Repeat("a", 52) + ".example.com"}},
		{"secondLocation": "Canada East", "frontDoor": "Standard_AzureFrontDoor"},
		{"name": "Tiney9"}, {"budgetStartDate": "2026-12-01"},
		{"budgetStartDate": "2026-12-01T00:00:00Z"}}...)
	accepted := len(cases)

	// These values are wrong: all those in the handler's own tests, and more.
	wrong := []values{{"ADMIN_KEY": "31-characters-that-are-no-secre"},
		{"ADMIN_KEY": "32 characters, that are no secret"},
		{"ADMIN_KEY": "32-characters-thät-are-no-secret"},
		{"ADMIN_KEY": "not-secret-and-for-development-only"},
		{"OIDC_ISSUER": "https://login.example"}, {"OIDC_CLIENT_ID": "an-app"},
		{"URLINDEX_TABLE_NAME": "shorturls"}, {"SHORTURL_TABLE_NAME": "Links_"},
		{"EXPIRYINDEX_TABLE_NAME": "ShortUrlsClicks20260101"},
		{"CLIENT_ADDRESS_HEADER": "forwarded"}, {"CLIENT_ADDRESS_HEADER": "A(B"},
		{"CLIENT_ADDRESS_HEADER": strings.Repeat("a", 101)}, {"OIDC_ADMIN_ROLE": " admin"},
		{"OIDC_GROUPS_CLAIM": "my groups"}, {"OIDC_GROUPS_CLAIM": "Grüppen"},
		{"OIDC_GROUPS_CLAIM": strings.Repeat("a", 201)}, {"OIDC_SCOPES": "profile openidx"},
		{"OIDC_SCOPES": "openid  groups"}, {"OIDC_SCOPES": " openid"}, {"OIDC_SCOPES": "openid "},
		{"OIDC_SCOPES": "openid grüppen"}, {"OIDC_SCOPES": "OpenID"},
		{"OIDC_SCOPES": "openid " + strings.Repeat("a", 194)}, {"OIDC_ADMIN_ROLE": "Übermut"},
		{"OIDC_API_AUDIENCE": " x"}, {"OIDC_API_AUDIENCE": "ä"},
		{"OIDC_API_AUDIENCE": strings.Repeat("a", 201)}, {"OIDC_API_SCOPE": "a b"},
		{"OIDC_API_SCOPE": `a"b`}, {"OIDC_API_SCOPE": `a\b`}, {"OIDC_SUBJECT_CLAIM": "a b"},
		{"OIDC_ISSUER": "https://login.example", "OIDC_CLIENT_ID": "an-app",
			"OIDC_API_AUDIENCE": "an-app"}, {"GC_BLOB_LOCK_CONTAINER": "a--b"},
		{"GC_BLOB_LOCK_CONTAINER": "-ab"}, {"GC_BLOB_LOCK_CONTAINER": "ab-"},
		{"GC_BLOB_LOCK_BLOB": ".lock"}, {"GC_BLOB_LOCK_BLOB": "lock-"},
		{"BaseUrl": "https://"}, {"BaseUrl": "https://u@tiney.example"},
		{"BaseUrl": "https://tiney.example?q"}, {"BaseUrl": "https://tiney.example/#f"},
		{"TABLE_SECONDARY": "http://copy.example"},
		{"TABLE_SECONDARY": "https://copy.example?sig=x"},
		{"TABLE_CONNECTION__accountName": "my account"},
		{"DOMAINS": "go.example.com,GO.example.com"}, {"DOMAINS": "go.example.com/s"},
		{"DOMAINS": strings.Join(append(hundred, "go.example.com"), ",")},
		{"DOMAINS": "Tiney.example", "BaseUrl": "https://tiney.example/s"},
		{"DOMAIN_HEADER": "X Host"}, {"DOMAIN_HEADER": strings.Repeat("a", 101)},
		{"EXTRA_SCHEMES": "1st"}, {"EXTRA_SCHEMES": "tel;sms"},
		{"HOME_URL": "https://Tiney.example:8443", "BaseUrl": "https://tiney.example/s"},
		{"GONE_URL": "https://go.example.com/x", "DOMAINS": "go.example.com"},
		{"HOME_URL": "https://example.com/{alias}"}, {"GONE_URL": "https://{domain}/x"},
		{"HOME_URL": "https://"}, {"HOME_URL": "ftp://example.com"},
		{"UNKNOWN_URL": "https://example.com/{Alias}"}, {"HOME_URL": "https://example.com/?{foo}"},
		{"EXTRA_SCHEMES": "mailto HTTPS"}, {"EXTRA_SCHEMES": "http"},
		{"GONE_URL": "https://example.com/" + strings.Repeat("a", 4096)}}
	for scheme := range strings.FieldsSeq("javascript DATA vbscript file blob about filesystem " +
		"view-source intent jar chrome resource ms-msdt search-ms ms-officecmd ms-appinstaller") {
		wrong = append(wrong, values{"EXTRA_SCHEMES": "tel," + scheme})
	}
	for _, issuer := range []string{"https://login.example?p=policy", "https://login.example#x",
		"login.example",
		"https://", "https://lögin.example", "https://login.example/a b"} {
		wrong = append(wrong, values{"OIDC_ISSUER": issuer, "OIDC_CLIENT_ID": "an-app"})
	}
	const file, start = "../handler/app/settings_test.go",
		"\nvar wrongSettings = map[string]string{\n"
	_, known, _ := strings.Cut(read(t, file), start)
	known, _, _ = strings.Cut(known, "\n}\n")
	compared := 0
	line := regexp.MustCompile(`(?m)^\t"(\w+)": +(".*"),$`)
	for _, found := range line.FindAllStringSubmatch(known, -1) {
		value, err := strconv.Unquote(found[2])
		if err != nil {
			t.Fatal(err)
		}
		settings := values{found[1]: value}
		if signIn[found[1]] != "" {
			settings = maps.Clone(signIn)
			settings[found[1]] = value
		}
		if parameterOf[found[1]] != "" {
			wrong = append(wrong, settings)
			compared++
		}
	}
	if compared < len(parameterOf)-1 { // without the account, which is a part of a connection
		t.Errorf("wrongSettings has values for %d of %d parameters", compared, len(parameterOf))
	}
	byType := map[int]bool{}
	for _, settings := range wrong {
		if handler(settings) == nil {
			t.Errorf("the handler takes %q", settings)
		}
		byType[len(cases)] = add(settings)
	}
	cases = append(cases, []map[string]any{{"name": "my-app"}, {"name": "1ab"}, {"name": "tinéy"},
		{"budgetStartDate": "2026-12-15"}, {"budgetStartDate": "2026-01"},
		{"privateNetwork": true}, {"zoneRedundant": true}, {"zoneRedundant": true, "plan": "B1"},
		{"siteUpdateStrategy": "RollingUpdate"}, {"hostStorageKey": "key2", "plan": "FC1"},
		{"hostStorageAccess": "key", "plan": "FC1"}, {"hostStorageAccess": "key", "plan": "B1"},
		{"frontDoorLogs": true}, {"packagesUrl": "http://example.com"},
		{"image": "x"}, {"image": "x", "plan": "F1"}, {"image": "x", "plan": "FC1"},
		{"customDomain": "go.example.com", "plan": "F1"},
		{"customDomain": "https://go.example.com"}, {"secondLocation": "canadaeast"},
		{"domains": hundred[:1], "plan": "F1"},
		{"bindDomains": false, "frontDoor": "Standard_AzureFrontDoor"},
		{"domains": hundred, "customDomain": "go.example.com",
			"frontDoor": "Standard_AzureFrontDoor"},
		{"domains": hundred[:2], "customDomain": "D1.example.com"},
		{"unknownUrl": "https://go.example.com/", "customDomain": "Go.example.com"},
		{"homeUrl": "https://?x", "baseUrl": "https://tiney.example"}, {"unknownUrl": "https://u@example.com"},
		{"goneUrl": "https://example.com/a b"}, {"goneUrl": `https://example.com\x`},
		{"secondLocation": "canadaeast", "frontDoor": "Standard_AzureFrontDoor", "plan": "F1"},
		{"adminKey": strings.Repeat("abcdefg", 5)},
		{"secondLocation": "canadaeast", "frontDoor": "Standard_AzureFrontDoor", "plan": "FC1",
			"privateNetwork": true},
		{"secondLocation": "Canada Central", "frontDoor": "Standard_AzureFrontDoor"}}...)

	for _, host := range []string{"", "localhost", "10.0.0.1", "-a.example.com", "a-.example.com",
		"a..example.com", "go.example.com.", "*.example.com", "go_x.example.com", "bücher.example",
		"go.example.com:443", "x.azurewebsites.net", "x.z01.azurefd.net",
		strings.Repeat("a", 53) + ".example.com", strings.Repeat("a", 64) + ".example"} {
		cases = append(cases, map[string]any{"domains": []string{host}})
	}

	said := map[string]bool{}
	for i, refused := range refuse(t, main, params, cases) {
		switch {
		case i < accepted && len(refused) > 0:
			t.Errorf("%v is right, and refused: %q", cases[i], refused)
		case i >= accepted && len(refused) == 0 && !byType[i]:
			t.Errorf("%v is deployed", cases[i])
		}
		for _, text := range refused {
			said[text] = true
		}
	}
	for _, text := range matches(t, main, `(?m)^  .* \? \['(.*)'\] : \[\],?$`) {
		if !said[text] {
			t.Errorf("nothing here is refused because %s", text)
		}
	}
}

// Package infra_test checks the Bicep files as far as that goes without the Bicep compiler and without Azure: their
// syntax, that what they name is there, the IDs of roles. That their settings are the handler's is checked in handler.
package infra_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"tiney/internal/bicep"
)

// assigned are the roles that the one identity gets, by the file that assigns them.
var assigned = map[string][]string{
	"modules/data-storage.bicep": {"Storage Blob Data Contributor", "Storage Table Data Contributor"},
	"modules/host-storage.bicep": {"Storage Blob Data Owner", "Storage Queue Data Contributor", "Storage Table Data Contributor"},
	"modules/monitoring.bicep":   {"Monitoring Metrics Publisher"},
}

func loadOne(t *testing.T) *template {
	t.Helper()
	templates, err := load(".")
	if err != nil {
		t.Fatal(err)
	}
	return templates[0]
}

func TestTemplate(t *testing.T) {
	template := loadOne(t)
	for _, problem := range slices.Concat(template.check(), template.checkRoles(assigned)) {
		t.Error(problem)
	}
	if len(template.files) < 10 {
		t.Errorf("only %d Bicep files were found", len(template.files))
	}
	for file, plan := range map[string]string{"parameters.dev.json": "F1", "parameters.prod.json": "Y1"} {
		var content struct {
			Schema         string `json:"$schema"`
			ContentVersion string
			Parameters     map[string]struct{ Value any }
		}
		if err := readJSON(file, &content); err != nil || content.Parameters["plan"].Value != plan {
			t.Errorf("%s is for plan %v, want %s (%v)", file, content.Parameters["plan"].Value, plan, err)
		}
	}
}

// TestStorageAccounts: the account of the links takes no key, and that of the host takes one only where there is a share.
func TestStorageAccounts(t *testing.T) {
	template := loadOne(t)
	accounts := 0
	for path, file := range template.files {
		for _, d := range file.Declarations {
			if d.Existing || !strings.HasPrefix(d.Of, "Microsoft.Storage/storageAccounts@") {
				continue
			}
			accounts++
			keys := "false"
			if path == "modules/host-storage.bicep" {
				keys = "hasShare"
			}
			for name, want := range map[string]string{"allowSharedKeyAccess": keys, "allowBlobPublicAccess": "false",
				"defaultToOAuthAuthentication": "true", "supportsHttpsTrafficOnly": "true", "minimumTlsVersion": "TLS1_2"} {
				if got := d.Body().Property("properties").Property(name).String(); got != want {
					t.Errorf("%s: %s is %q, want %q", path, name, got, want)
				}
			}
		}
	}
	if accounts != 2 {
		t.Errorf("%d storage accounts, want 2", accounts)
	}
}

// TestSites: what every site has to have, and what its plan refuses.
func TestSites(t *testing.T) {
	template := loadOne(t)
	both := map[string]string{"properties.httpsOnly": "true", "identity.type": "UserAssigned", "properties.siteConfig.minTlsVersion": "1.2",
		"properties.siteConfig.scmMinTlsVersion": "1.2", "properties.siteConfig.ftpsState": "Disabled", "properties.siteConfig.scmIpSecurityRestrictionsUseMain": "false",
		"properties.siteConfig.appSettings": "", "properties.siteConfig.netFrameworkVersion": "", "properties.siteConfig.linuxFxVersion": ""}
	for path, want := range map[string]map[string]string{
		"modules/site-consumption.bicep": {"kind": "functionapp", "properties.siteConfig.use32BitWorkerProcess": "true", "properties.siteConfig.healthCheckPath": ""},
		"modules/site-web.bicep": {"kind": "app", "properties.siteConfig.use32BitWorkerProcess": "true", "properties.siteConfig.alwaysOn": "false",
			"properties.siteConfig.healthCheckPath": "/api/health"},
		"modules/site-flex.bicep": {"kind": "functionapp,linux", "properties.siteConfig.use32BitWorkerProcess": "", "properties.siteConfig.alwaysOn": "",
			"properties.siteConfig.healthCheckPath": "", "properties.functionAppConfig.runtime.name": "custom", "properties.functionAppConfig.runtime.version": "1.0",
			"properties.functionAppConfig.deployment.storage.type":                                          "blobContainer",
			"properties.functionAppConfig.deployment.storage.authentication.type":                           "UserAssignedIdentity",
			"properties.functionAppConfig.deployment.storage.authentication.userAssignedIdentityResourceId": "identityId"},
	} {
		body := template.files[path].Declared("resource", "site").Body()
		maps.Copy(want, both)
		for property, value := range want {
			node := body
			for name := range strings.SplitSeq(property, ".") {
				node = node.Property(name)
			}
			if node.String() != value {
				t.Errorf("%s: %s is %q, want %q", path, property, node.String(), value)
			}
		}
	}
}

// TestASiteIsChangedByOneAtATime: two changes at once may get a 409. Each waits for the one before, in one chain.
func TestASiteIsChangedByOneAtATime(t *testing.T) {
	file := loadOne(t).files["modules/site-settings.bicep"]
	var changes []string
	waits := map[string]string{} // for whom, by the name
	for _, d := range file.Declarations {
		if d.Kind == "resource" && d.Body().Property("parent").String() == "site" {
			changes = append(changes, d.Name)
			for _, other := range d.Body().Property("dependsOn").References() {
				waits[d.Name] = other.Text
			}
		}
	}
	chain := []string{"appSettings"}
	for waits[chain[0]] != "" && len(chain) < 9 {
		chain = slices.Insert(chain, 0, waits[chain[0]])
	}
	if !slices.Equal(slices.Sorted(slices.Values(chain)), slices.Sorted(slices.Values(changes))) || len(changes) < 3 {
		t.Errorf("the site's %q are deployed as %q", changes, chain)
	}
}

// TestAlertsAreSwitchedTogether: what alertsEnabled turns off, stays silent.
func TestAlertsAreSwitchedTogether(t *testing.T) {
	template := loadOne(t)
	rules := 0
	for path, file := range template.files {
		for _, d := range file.Declarations {
			of, _, _ := strings.Cut(d.Of, "@")
			if of != "Microsoft.Insights/metricAlerts" && of != "Microsoft.Insights/scheduledQueryRules" {
				continue
			}
			rules++
			enabled := d.Body().Property("properties").Property("enabled").String()
			module := template.files["main.bicep"].Declared("module", strings.TrimSuffix(filepath.Base(path), ".bicep"))
			if module == nil || module.Body().Property("params").Property(enabled).String() != "alertsEnabled" {
				t.Errorf("%s: %s is enabled by %q, which is not alertsEnabled", path, d.Name, enabled)
			}
		}
	}
	if rules != 2 {
		t.Errorf("%d kinds of alerts, want 2", rules)
	}
}

// TestBudget: Azure refuses a budget that lacks a part, and the whole deployment with it. So there is one only where each
// parameter that it takes, and that says nothing by default, says something.
func TestBudget(t *testing.T) {
	needs := budgetNeeds(t, loadOne(t))
	for _, name := range []string{"budgetAmount", "budgetStartDate", "alertEmail"} {
		if !slices.Contains(needs, name) {
			t.Errorf("the budget does not take %s: %q", name, needs)
		}
	}
	docs := read(t, "../docs/deployment.md")
	commands := regexp.MustCompile("`(--param budgetAmount=[1-9][^`]*)`").FindAllStringSubmatch(docs, -1)
	if len(commands) == 0 {
		t.Error("docs/deployment.md does not say how to get a budget")
	}
	for _, command := range commands {
		for _, name := range needs {
			if !strings.Contains(command[1]+" ", "--param "+name+"=") {
				t.Errorf("docs/deployment.md gives a budget no %s: %s", name, command[1])
			}
		}
		if !regexp.MustCompile(`budgetStartDate=(YYYY-MM|\d{4}-\d\d)-01\b`).MatchString(command[1]) {
			t.Errorf("docs/deployment.md does not start a budget on the first of a month: %s", command[1])
		}
	}
}

// TestTheDocsRegisterTheProviders: who has rights on the group alone cannot deploy what nobody has registered.
func TestTheDocsRegisterTheProviders(t *testing.T) {
	docs := read(t, "../docs/deployment.md")
	want := map[string]bool{}
	for of := range versions {
		provider, _, _ := strings.Cut(of, "/")
		if provider != "Microsoft.Authorization" { // which every subscription has
			want[provider] = true
		}
	}
	got := map[string]bool{}
	for _, found := range regexp.MustCompile(`(?m)^ *az provider register --namespace (\S+)`).FindAllStringSubmatch(docs, -1) {
		got[found[1]] = true
	}
	if !maps.Equal(got, want) {
		t.Errorf("docs/deployment.md registers %v, want %v", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
	// What has brackets is a pattern to some shells, and an error where no file has such a name.
	if found := regexp.MustCompile(`--query [^"'\s]*[][?*]\S*`).FindString(docs); found != "" {
		t.Errorf("docs/deployment.md has no quotes around %s", found)
	}
}

// budgetNeeds returns the parameters that the budget takes, and checks that its condition has all of them.
func budgetNeeds(t *testing.T, template *template) []string {
	t.Helper()
	main := template.files["main.bicep"]
	module := main.Declared("module", "budget")
	var asked []string
	for _, reference := range module.Value.Child(0).References() {
		asked = append(asked, reference.Text)
	}
	var needs []string
	for _, reference := range module.Body().Property("params").References() {
		param := main.Declared("param", reference.Text)
		if param == nil || param.Value.String() != "" && param.Value.String() != "0" {
			continue
		}
		needs = append(needs, param.Name)
		if !slices.Contains(asked, param.Name) {
			t.Errorf("there is a budget without %s, too", param.Name)
		}
	}
	return needs
}

// TestParameterFilesFitEachOther: a group may get its plans from one file and later from the other, and its one storage
// account keeps the redundancy that it was made with.
func TestParameterFilesFitEachOther(t *testing.T) {
	for _, file := range []string{"parameters.dev.json", "parameters.prod.json"} {
		if strings.Contains(read(t, file), "dataRedundancy") {
			t.Errorf("%s has dataRedundancy", file)
		}
	}
}

const good = `targetScope = 'resourceGroup'

@description('A size.')
@minValue(1)
@maxValue(9)
param size int = 3

@description('A kind.')
@allowed([
  'a'
  'b'
])
param kind string = 'a'

@description('A secret.')
@secure()
param secret string = ''

@description('Where.')
param location string = 'canadacentral'

@description('Who.')
param principalId string = 'x'

var roles = {
  'Storage Blob Data Contributor': 'ba92f5b4-2d11-453d-a403-e96b0029c9fe'
}
var sizes = [for i in range(0, size): i]

resource account 'Microsoft.Storage/storageAccounts@2025-06-01' = {
  name: 'tiney${uniqueString(resourceGroup().id, secret, kind)}'
  location: location
}

resource service 'Microsoft.Storage/storageAccounts/blobServices@2025-06-01' = {
  parent: account
  name: 'default'
}

resource accountRoles 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for role in items(roles): {
  name: guid(account.id, principalId, role.value)
  scope: account
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', role.value)
    principalId: principalId
    principalType: 'ServicePrincipal'
  }
}]

module inner 'modules/inner.bicep' = if (size > 2) {
  name: 'inner'
  params: {
    mode: 'fast'
    sizes: sizes
  }
  dependsOn: [
    service
  ]
}

@description('What came of it.')
output text string = size > 2 ? inner!.outputs.text : ''
`

const goodInner = `@description('How.')
@allowed([
  'fast'
  'slow'
])
param mode string

@description('How many.')
param sizes array

var content = loadTextContent('../content.json')

@description('What came of it.')
output text string = '${mode}${length(sizes)}${content}'
`

const goodParameters = `{"$schema": "https://schema.management.azure.com/schemas/2019-04-01/deploymentParameters.json#",
  "contentVersion": "1.0.0.0", "parameters": {"size": {"value": 4}, "kind": {"value": "b"}}}`

// TestChecks shows that each check finds what it is for: one thing at a time is made wrong in a template that is right.
func TestChecks(t *testing.T) {
	write := func(t *testing.T, main, inner, parameters string) string {
		folder := t.TempDir()
		if err := os.Mkdir(filepath.Join(folder, "modules"), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, content := range map[string]string{"main.bicep": main, "modules/inner.bicep": inner, "parameters.test.json": parameters, "content.json": "[]"} {
			if err := os.WriteFile(filepath.Join(folder, filepath.FromSlash(name)), []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return folder
	}
	want := map[string][]string{"main.bicep": {"Storage Blob Data Contributor"}}

	tests := []struct{ from, to, problem string }{
		{"", "", ""},
		// syntax
		{"param size int = 3", "param size int == 3", "is missing"},
		{"  location: location\n}", "  location: location\n", "not understood"},
		// names
		{"var sizes =", "var kind = 1\nvar sizes =", "kind is declared twice"},
		{"range(0, size)", "range(0, sizze)", "sizze is not declared"},
		{"var sizes =", "var unused = 1\nvar sizes =", "var unused is not used"},
		{"var sizes =", "@description('x')\nparam unused int = 1\nvar sizes =", "param unused is not used"},
		{"var sizes =", "resource old 'Microsoft.Storage/storageAccounts@2025-06-01' existing = {\n  name: 'old'\n}\nvar sizes =", "resource old is not used"},
		{"inner!.outputs.text", "inner!.outputs.texts", "has no output texts"},
		{"loadTextContent('../content.json')", "loadTextContent('content.json')", "content.json is not there"},
		// parameters
		{"@description('A size.')\n", "", "param size has no description"},
		{"@description('How many.')\n", "@description('')\n", "param sizes has no description"},
		{"param size int = 3", "param size int = 0", "below its @minValue"},
		{"param size int = 3", "param size int = 10", "above its @maxValue"},
		{"param size int = 3", "param size int = '3'", "is a string, not a int"},
		{"param kind string = 'a'", "param kind string = 'c'", "is not allowed: c"},
		{"@allowed([\n  'a'\n  'b'\n])\n", "@minLength(2)\n", "below its @minLength"},
		{"@allowed([\n  'a'\n  'b'\n])\n", "@maxLength(0)\n", "above its @maxLength"},
		// resources
		{"storageAccounts@2025-06-01' = {", "storageAccounts@2024-01-01' = {", `the API version "2024-01-01", want "2025-06-01"`},
		{"Microsoft.Storage/storageAccounts@2025-06-01' = {", "Microsoft.Sql/servers@2025-06-01' = {", `want ""`},
		{"  parent: account\n", "", "no parent of the type Microsoft.Storage/storageAccounts"},
		{"  name: 'default'\n", "", "resource service has no name"},
		{"  location: location\n}", "  location: 'westeurope'\n  tags: {\n    a: location\n  }\n}", "fixed to the region westeurope"},
		{"  location: location\n}", "  location: resourceGroup().location\n  tags: {\n    a: location\n  }\n}", "not the group's"},
		{"name: 'tiney${", "name: 'https://a.blob.core.windows.net/${", "an address of one cloud"},
		{"dependsOn: [\n    service", "dependsOn: [\n    service\n    account\n  ]\n  tags: [\n    account", "need not say that it depends on account"},
		// role assignments
		{"  scope: account\n", "", "has no resource as its scope"},
		{"  scope: account\n", "  scope: resourceGroup()\n", "has no resource as its scope"},
		{"guid(account.id, principalId, role.value)", "guid(resourceGroup().id, principalId, role.value)", "is not guid(account.id"},
		{"guid(account.id, principalId, role.value)", "guid(account.id, role.value)", "is not guid(account.id"},
		{"subscriptionResourceId('Microsoft.Authorization/roleDefinitions'", "resourceId('Microsoft.Authorization/roleDefinitions'", "not a subscriptionResourceId"},
		{"    principalType: 'ServicePrincipal'\n", "", "ServicePrincipal"},
		{"'ba92f5b4-2d11-453d-a403-e96b0029c9fe'", "'ba92f5b4-2d11-453d-a403-e96b0029c9ff'", "Storage Blob Data Contributor is ba92f5b4"},
		{"'Storage Blob Data Contributor': 'ba92f5b4-2d11-453d-a403-e96b0029c9fe'", "'Storage Blob Data Owner': 'b7e6dc6d-f1e8-4753-8033-0f276bb0955b'", `want ["Storage Blob Data Contributor"]`},
		{"'Storage Blob Data Contributor': 'ba92f5b4-2d11-453d-a403-e96b0029c9fe'", "Owner: '8e3af657-a8ff-443c-a75c-2fe8c4bcb635'", "Owner is , not 8e3af657"},
		{"principalId, role.value)", "principalId, 'ba92f5b4-2d11-453d-a403-e96b0029c9fe')", "an ID outside the variable roles"},
		{"roleDefinitions', role.value)", "roleDefinitions', kind)", "not a loop over items(roles)"},
		{"in items(roles)", "in [\n  roles\n]", "not a loop over items(roles)"},
		// modules
		{"'modules/inner.bicep'", "'modules/other.bicep'", "modules/other.bicep is not there"},
		{"'modules/inner.bicep'", "'modules/other.bicep'", "no module declaration names this file"},
		{"    mode: 'fast'\n", "", "does not get its param mode"},
		{"    mode: 'fast'\n", "    mode: 'fast'\n    moode: 'fast'\n", "has no param moode"},
		{"    mode: 'fast'\n", "    mode: 'faster'\n", "is not allowed: faster"},
		{"    mode: 'fast'\n", "    mode: 3\n", "is a number, not a string"},
		// outputs
		{"@description('What came of it.')\noutput text string = size", "output text string = size", "output text has no description"},
		{"output text string = size", "output text string = !empty(account.listKeys().keys) || size", "shows a key"},
		{"output text string = size", "output text string = !empty(listKeys(account.id, '2025-06-01')) || size", "shows a key"},
		{"var sizes =", "var shown = '${secret}'\n@description('x')\noutput shown string = shown\nvar sizes =", "shows the secure param secret"},
		// parameter files
		{`"size": {"value": 4}`, `"sizes": {"value": 4}`, "main.bicep has no param sizes"},
		{`"size": {"value": 4}`, `"size": {"value": 40}`, "size is above its @maxValue"},
		{`"size": {"value": 4}`, `"size": {"value": "4"}`, "size is a string, not a int"},
		{`"size": {"value": 4}`, `"size": {"value": null}`, "size is a null"},
		{`"size": {"value": 4}`, `"size": {"value": 4.5}`, "is no whole number"},
		{`"kind": {"value": "b"}`, `"kind": {"value": "c"}`, "kind is not allowed: c"},
		{`"kind": {"value": "b"}`, `"kind": {"vaule": "b"}`, "unknown field"},
		{"2019-04-01", "2015-01-01", "not a parameter file"},
		{"param kind string = 'a'", "param kind string", ""},
		{"param principalId string = 'x'", "param principalId string", "no value for param principalId"},
	}
	var folders []string
	for _, test := range tests {
		main, inner, parameters := strings.Replace(good, test.from, test.to, 1), strings.Replace(goodInner, test.from, test.to, 1), strings.Replace(goodParameters, test.from, test.to, 1)
		if test.from != test.to && main == good && inner == goodInner && parameters == goodParameters {
			t.Errorf("%q is nowhere", test.from)
		}
		folders = append(folders, write(t, main, inner, parameters))
	}
	templates, err := load(folders...)
	if err != nil {
		t.Fatal(err)
	}
	for i, test := range tests {
		problems := append(templates[i].check(), templates[i].checkRoles(want)...)
		found := slices.ContainsFunc(problems, func(problem string) bool { return strings.Contains(problem, test.problem) })
		if found != (test.problem != "") || test.problem == "" && len(problems) > 0 {
			t.Errorf("%q for %q: want %q, found %q", test.to, test.from, test.problem, problems)
		}
	}

	if _, err := bicep.Parse("nowhere.bicep"); err == nil {
		t.Error("a file that is not there was read")
	}
}

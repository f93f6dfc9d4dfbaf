// Package infra_test tests the files that are deployed beside the executable. `make lint` and
// .github/workflows/build.yml let the Bicep CLI compile and lint the Bicep files. The tests here
// check what a compiler cannot: the IDs of roles, properties that keep promises, names that the
// scripts and the docs share with the template, the queries, and deploy.sh.
package infra_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// matches returns the matches of pattern's first group. There must be at least one.
func matches(t *testing.T, text, pattern string) []string {
	t.Helper()
	var found []string
	for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		found = append(found, match[1])
	}
	if len(found) == 0 {
		t.Fatalf("nothing matches %s", pattern)
	}
	return found
}

// stub writes a command into a folder, as a script of sh.
func stub(t *testing.T, dir, name, script string) {
	t.Helper()
	err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755)
	if err != nil {
		t.Fatal(err)
	}
}

// step returns the script of a step, which comes after a text that matches pattern.
func step(t *testing.T, workflow, pattern string) string {
	t.Helper()
	return strings.ReplaceAll(matches(t, workflow,
		`(?m)`+pattern+`        run: \|\n((?:          .*\n)+)`)[0], "          ", "")
}

// asGitHub returns the command that runs a step as GitHub does, with the stubs in a folder.
func asGitHub(t *testing.T, step, stubs string, env ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), "bash", "-e", "-c", step)
	cmd.Env = append(append(os.Environ(), "PATH="+stubs+":"+os.Getenv("PATH")), env...)
	return cmd
}

// bicepFiles returns the text of main.bicep and of the modules, by path.
func bicepFiles(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob("modules/*.bicep")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no modules (%v)", err)
	}
	files := map[string]string{"main.bicep": read(t, "main.bicep")}
	for _, path := range paths {
		files[filepath.ToSlash(path)] = read(t, path)
	}
	return files
}

// roles are the built-in roles in use. Their IDs are in
// https://learn.microsoft.com/azure/role-based-access-control/built-in-roles.
var roles = map[string]string{
	"Monitoring Metrics Publisher":   "3913510d-42f4-4e42-8a64-420c390055eb",
	"Storage Blob Data Contributor":  "ba92f5b4-2d11-453d-a403-e96b0029c9fe",
	"Storage Blob Data Owner":        "b7e6dc6d-f1e8-4753-8033-0f276bb0955b",
	"Storage Queue Data Contributor": "974c5e8b-45b9-4653-ba55-5f855dd0fb88",
	"Storage Table Data Contributor": "0a9a7e1f-b9d0-4cc4-a60d-0319b160aaa3",
}

// assigned are the roles that the identity gets, by the file that assigns them. Each comes after
// its resource.
var assigned = map[string][]string{
	"modules/data-storage-roles.bicep": {"account: Storage Table Data Contributor",
		"lockContainer: Storage Blob Data Contributor"},
	"modules/host-storage-roles.bicep": {"account: Storage Blob Data Owner",
		"account: Storage Queue Data Contributor", "account: Storage Table Data Contributor"},
	"modules/monitoring-roles.bicep": {"component: Monitoring Metrics Publisher"},
}

// assignment is the text that assigns all roles of a variable on one resource. The name is the same
// in every deployment, and changes if anything in the assignment changes. The principal's type is
// needed because a new identity cannot be found at once without it.
const assignment = `Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for role in items(%[2]s): {
    name: guid(%[1]s.id, principalId, role.value)
    scope: %[1]s
    properties: {
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', role.value)
      principalId: principalId
      principalType: 'ServicePrincipal'
    }
  }
]
`

var (
	rolesVariable = regexp.MustCompile(`(?ms)^var (roles|\w+Roles) = \{\n(.*?)^\}\n`)
	roleLine      = regexp.MustCompile(`(?m)^ +'?([^':]+)'?: '(.*)'$`)
	assignmentOf  = regexp.MustCompile(
		`(?m)^resource \w+ 'Microsoft.Authorization/roleAssignments@.*\n.* in items\((\w+)\): \{\n.*\n` +
			`    scope: (\w+)$`)
	guid = regexp.MustCompile(
		`[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}`)
)

// roleProblems compares the roles that a file assigns with the expected ones and with the
// documented IDs.
func roleProblems(path, text string) (problems []string) {
	scopes := map[string]string{} // resources by the variable whose roles are assigned on them
	for _, found := range assignmentOf.FindAllStringSubmatch(text, -1) {
		if strings.Contains(text, fmt.Sprintf(assignment, found[2], found[1])) &&
			strings.Contains(text, "resource "+found[2]+" '") {
			scopes[found[1]] = found[2]
		}
	}
	if len(scopes) != strings.Count(text, "Microsoft.Authorization/roleAssignments") {
		problems = append(problems, "does not assign its roles as all do")
	}
	var got []string
	for _, variable := range rolesVariable.FindAllStringSubmatch(text, -1) {
		for _, line := range roleLine.FindAllStringSubmatch(variable[2], -1) {
			got = append(got, scopes[variable[1]]+": "+line[1])
			if line[2] != roles[line[1]] {
				problems = append(problems, fmt.Sprintf("%s is %q, not %q", line[1], roles[line[1]],
					line[2]))
			}
		}
	}
	if slices.Sort(got); !slices.Equal(got, assigned[path]) {
		problems = append(problems, fmt.Sprintf("assigns %q, want %q", got, assigned[path]))
	}
	if id := guid.FindString(rolesVariable.ReplaceAllString(text, "")); id != "" {
		problems = append(problems, "has an ID outside the variables of roles: "+id)
	}
	return problems
}

func TestRoles(t *testing.T) {
	files := bicepFiles(t)
	for path, text := range files {
		for _, problem := range roleProblems(path, text) {
			t.Errorf("%s %s", path, problem)
		}
	}
	// These are the roles that GitHub may assign, and those that it may delete.
	condition := guid.FindAllString(read(t, "github-condition.txt"), -1)
	slices.Sort(condition)
	want := slices.Sorted(maps.Values(roles))
	if want = slices.Sorted(slices.Values(slices.Concat(want, want))); !slices.Equal(condition,
		want) {
		t.Errorf("github-condition.txt lets GitHub assign and delete %q, want %q", condition, want)
	}

	const path = "modules/data-storage-roles.bicep"
	for _, wrong := range []struct{ from, to, want string }{
		{"'ba92f5b4-2d11-453d-a403-e96b0029c9fe'", "'ba92f5b4-2d11-453d-a403-e96b0029c9ff'",
			"Storage Blob Data Contributor is"},
		{"'Storage Blob Data Contributor': 'ba92f5b4-2d11-453d-a403-e96b0029c9fe'",
			"'Storage Blob Data Owner': 'b7e6dc6d-f1e8-4753-8033-0f276bb0955b'", "assigns"},
		{"roleDefinitions', role.value)",
			"roleDefinitions', '8e3af657-a8ff-443c-a75c-2fe8c4bcb635')", "an ID outside"},
		{"guid(account.id, principalId, role.value)", "guid(account.id, role.value)",
			"does not assign"},
		{"      principalType: 'ServicePrincipal'\n", "", "does not assign"},
		{"    scope: lockContainer\n", "    scope: account\n", "does not assign"},
		{"var containerRoles = {\n", "", "assigns"},
	} {
		text := strings.Replace(files[path], wrong.from, wrong.to, 1)
		if text == files[path] || !strings.Contains(strings.Join(roleProblems(path, text), "\n"),
			wrong.want) {
			t.Errorf("%q for %q: want %q, got %q", wrong.to, wrong.from, wrong.want,
				roleProblems(path, text))
		}
	}
}

// TestRequiredLines checks for lines that no compiler requires. A missing one would be noticed only
// in Azure, or by an attacker.
func TestRequiredLines(t *testing.T) {
	site := "httpsOnly: true; minTlsVersion: '1.2'; ipSecurityRestrictionsDefaultAction: " +
		"accessOtherwise; "
	for path, lines := range map[string]string{
		"data-storage": "allowSharedKeyAccess: false; allowBlobPublicAccess: false; " +
			"supportsHttpsTrafficOnly: true; " +
			"publicNetworkAccess: private ? 'Disabled' : 'Enabled'; level: 'CanNotDelete'",
		"host-storage": "allowSharedKeyAccess: hasShare; allowBlobPublicAccess: false; " +
			"supportsHttpsTrafficOnly: true; name: sku; " +
			"publicNetworkAccess: private ? 'Disabled' : 'Enabled'",
		"alerts": "workspaceId; query: '_LogOperation | where Category =~ \"Ingestion\" | " +
			"where Detail contains \"OverQuota\"'; metricName: 'Http5xx'; metricName: " +
			"'Transactions'; metricName: 'OriginHealthPercentage'; equals: 'ResourceHealth'",
		"monitoring": "DisableLocalAuth: true",
		// Every request has a Host. Links are made by POST, on four paths.
		"front-door": "matchVariable: 'RequestHeader'; selector: 'Host'; operator: " +
			"'GreaterThanOrEqual'; '0'; " +
			"matchVariable: 'RequestMethod'; 'POST'; rateLimitThreshold: shortensPerMinute; " +
			"rateLimitThreshold: requestsPerMinute; certificateType: 'ManagedCertificate'; " +
			"customDomainIds",
		"workbook": "'WORKSPACE_ID',",
		// main.bicep makes the IDs of these subnets.
		"network": "serviceName: 'Microsoft.App/environments'; name: 'site'; name: 'endpoints'",
		"front-door-route": "caches\n        ? [; customDomains: map(domains, domain => {; hostRule; " +
			"cacheConfiguration: caches\n      ? {; probePath: " +
			"'/api/ready'; probeProtocol: 'Https'; " +
			"sessionAffinityState: 'Disabled'; healthProbeSettings: length(siteNames) == 1\n" +
			"      ? null\n      : {; priority: 1",
		"../main": "caches: redirectMaxAgeSeconds > 0; zoneRedundant: site.zoneRedundant && " +
			"isPremium; " +
			"maximumInstanceCount: isPremium ? min(maximumInstanceCount, 30) : 1; " +
			"maximumInstanceCount: min(maximumInstanceCount, 200); " +
			"package: empty(packagesUrl) ? '1' : '${packagesUrl}/tiney-windows-386.zip'; " +
			"hostStorageAccess: hostStorageAccess; sku: site.hostRedundancy; " +
			"hostRedundancy: i > 0 ? 'Standard_LRS' : zoneRedundant ? 'Standard_ZRS' : " +
			"hostRedundancy; content: plan == 'Y1' ? 'share' : 'container'; " +
			"hostStorageKey: hostStorageKey; siteUpdateStrategy: siteUpdateStrategy; " +
			"accessLogs: frontDoorLogs; " +
			"frontDoorName: length(sites) > 1 ? edgeName : ''; " +
			"package: empty(packagesUrl) ? '1' : '${packagesUrl}/tiney-webapp-windows-" +
			"${plan == 'F1' ? '386' : 'amd64'}.zip'; " +
			"private: privateNetwork; " +
			"siteTags: i == 0\n        ? {; domains: frontDoorDomains",
		"site-consumption": site + "ftpsState: 'Disabled'; kind: 'functionapp'; name: 'Y1'; " +
			"use32BitWorkerProcess: true; netFrameworkVersion: 'v8.0'; " +
			"functionAppScaleLimit: maximumInstanceCount; appSettings: " +
			"map(items(settingsAtCreation), setting => {; settings: allSettings; " +
			"WEBSITE_RUN_FROM_PACKAGE: package",
		"site-web": site + "ftpsState: 'Disabled'; kind: isContainer ? 'app,linux,container' : " +
			"'app'; reserved: isContainer; name: sku; " +
			"use32BitWorkerProcess: isFree; alwaysOn: !isFree; healthCheckPath: isFree ? " +
			"'/api/health' : '/api/ready'; linuxFxVersion: 'DOCKER|${image}'; " +
			"category: 'AppServiceHTTPLogs'\n        enabled: false; zoneRedundant: " +
			"zoneRedundant; minimum: string(leastInstances); maximum: " +
			"string(max(maximumInstanceCount, leastInstances)); metricName: 'CpuPercentage'; " +
			"WEBSITE_RUN_FROM_PACKAGE: package",
		"site-flex": site + "kind: 'functionapp,linux'; tags: union(tags, siteTags); name: " +
			"'FC1'; name: 'custom'; version: '1.0'; type: 'UserAssignedIdentity'; " +
			"zoneRedundant: zoneRedundant; virtualNetworkSubnetId: empty(subnetId) ? null : " +
			"subnetId; siteUpdateStrategy: siteUpdateStrategy == 'Recreate'\n        ? null\n" +
			"        : {; value: deploymentContainer",
	} {
		text := read(t, "modules/"+path+".bicep")
		for line := range strings.SplitSeq(lines, "; ") {
			if !strings.Contains(text, " "+line+"\n") {
				t.Errorf("%s.bicep has no line %q", path, line)
			}
		}
	}
}

// TestDomains checks that a site gets its domains one after the other, that nothing of two domains
// has the same name, and that Front Door overwrites the header by which a site knows the domain.
func TestDomains(t *testing.T) {
	for path, lines := range map[string][]string{
		"main.bicep": {"\n@batchSize(1)\nmodule domain 'modules/domain.bicep' = " +
			"[\n  for host in siteDomains: {\n    name: '${name}-domain-${uniqueString(host)}'\n",
			"\nvar siteDomains = hasFrontDoor || !bindDomains ? [] : hosts\n",
			"\nvar frontDoorDomains = map(hasFrontDoor ? hosts : [], host => {\n  name: host == " +
				"toLower(customDomain) ? replace(host, '.', '-') : " +
				"'${replace(host, '.', '-')}-${uniqueString(host)}'\n  host: host\n})\n",
			"addDomain: !contains(domainsWithCertificate, '${firstSite}/${host}')\n"},
		"modules/domain.bicep": {"'domain-certificate.bicep' = if (!flex) {\n  name: '${siteName}-" +
			"certificate-${uniqueString(domain)}'\n", "'domain-certificate-flex.bicep' = if (flex) " +
			"{\n  name: '${siteName}-certificate-${uniqueString(domain)}'\n"},
		"modules/domain-certificate.bicep":      {"  name: '${siteName}-${domain}'\n"},
		"modules/domain-certificate-flex.bicep": {"  parent: site\n  name: domain\n"},
		"modules/front-door.bicep": {"  for domain in domains: {\n    parent: profile\n    " +
			"name: domain.name\n", "\n  dependsOn: [\n    customDomains\n  ]\n",
			"id: resourceId('Microsoft.Cdn/profiles/customDomains', name, domain.name)\n"},
		"modules/front-door-route.bicep": {
			"id: resourceId('Microsoft.Cdn/profiles/customDomains', profileName, domain.name)\n",
			"    conditions: []\n    actions: [\n      {\n        name: " +
				"'ModifyRequestHeader'\n        parameters: {\n          typeName: " +
				"'DeliveryRuleHeaderActionParameters'\n          headerAction: 'Overwrite'\n" +
				"          headerName: 'X-Tiney-Host'\n          value: '{hostname}'\n",
			"    ruleSets: concat(\n      [\n        {\n          id: hostRuleSet.id\n        }\n" +
				"      ],\n      caches\n"},
	} {
		text := read(t, path)
		for _, line := range lines {
			if !strings.Contains(text, line) {
				t.Errorf("%s has no %q", path, line)
			}
		}
	}
	// Azure takes no longer name of a deployment.
	longest := strings.NewReplacer("${name}", "12345678", "${siteName}", strings.Repeat("s", 33),
		"${site.name}", strings.Repeat("s", 33), "${firstSite}", strings.Repeat("s", 33), "${uniqueString(host)}", "1234567890123",
		"${uniqueString(domain)}", "1234567890123")
	for path, text := range bicepFiles(t) {
		for _, found := range regexp.MustCompile(
			`(?m)^module .*\n(?:  for .*\n)? +name: '(.*)'$`).FindAllStringSubmatch(text, -1) {
			if name := longest.Replace(found[1]); len(name) > 64 || strings.Contains(name, "$") {
				t.Errorf("%s deploys under the name %s", path, name)
			}
		}
	}
}

// TestResourceTypes refuses new versions of APIs. A version that is only months old may not exist,
// or not in every region, and no compiler here tells. Bicep 0.49.2 has compiled the allowed
// versions.
func TestResourceTypes(t *testing.T) {
	const newest, outbound = "2025-07-01", "2025-07-01"
	for path, text := range bicepFiles(t) {
		for _, found := range regexp.MustCompile(
			`'(Microsoft\.[\w/]+)@(\d{4}-\d\d-\d\d)`).FindAllStringSubmatch(text, -1) {
			if found[2] > newest {
				t.Errorf("%s has %s of %s", path, found[1], found[2])
			}
			// From this version on, subnets have no outbound access by default.
			if strings.HasSuffix(found[1], "/virtualNetworks") && found[2] >= outbound &&
				!strings.Contains(text, "defaultOutboundAccess: true") {
				t.Errorf("%s has networks of %s and no defaultOutboundAccess", path, found[2])
			}
		}
	}
}

// TestHostLogsOnce checks that a category of logs is not sent. It would store each line of the host
// a second time, unsampled, and use up the daily cap.
func TestHostLogsOnce(t *testing.T) {
	for path, text := range bicepFiles(t) {
		if strings.Contains(text, "FunctionAppLogs") {
			t.Errorf("%s sends FunctionAppLogs", path)
		}
	}
}

// TestSecretsStaySecret checks that secret parameters are @secure. The history of a deployment
// shows values that are passed to a module without it.
func TestSecretsStaySecret(t *testing.T) {
	secret, checked := regexp.MustCompile(`(?m)^((?:@.*\n)*)param (adminKey|settings) `), 0
	for path, text := range bicepFiles(t) {
		for _, found := range secret.FindAllStringSubmatch(text, -1) {
			checked++
			if !strings.Contains(found[1], "@secure()\n") {
				t.Errorf("%s: %s is not secure", path, found[2])
			}
		}
	}
	if checked != 5 { // the key, and the settings of three sites and of site-settings.bicep
		t.Errorf("%d parameters hold the key, want 5", checked)
	}
}

// TestNamesInTemplate checks that main.bicep has the outputs that deploy.sh reads, and the
// parameters that the docs and the parameter files set.
func TestNamesInTemplate(t *testing.T) {
	template := read(t, "main.bicep")
	for _, output := range matches(t, read(t, "deploy.sh"), `outputs\.(\w+)\.value`) {
		if !strings.Contains(template, "\noutput "+output+" ") {
			t.Errorf("main.bicep has no output %s", output)
		}
	}
	parameters := append(matches(t, read(t, "../docs/deployment.md"), `--param (\w+)=`), "plan",
		"location")
	parameters = append(parameters, matches(t, read(t, "../.github/workflows/release.yml"),
		`\.parameters\.(\w+)\.defaultValue`)...)
	for file, plan := range map[string]string{"parameters.dev.json": "F1",
		"parameters.prod.json": "Y1", "main.parameters.json": "FC1"} {
		content := decode[struct {
			Parameters map[string]struct{ Value any }
		}](t, file)
		if got := content.Parameters["plan"].Value; got != plan {
			t.Errorf("%s is for plan %v, want %s", file, got, plan)
		}
		parameters = slices.AppendSeq(parameters, maps.Keys(content.Parameters))
	}
	for _, name := range parameters {
		if !strings.Contains(template, "\nparam "+name+" ") {
			t.Errorf("main.bicep has no parameter %s", name)
		}
	}
}

// TestNamesAreDeclaredOnce checks what a Bicep compiler would refuse at once.
func TestNamesAreDeclaredOnce(t *testing.T) {
	for path, text := range bicepFiles(t) {
		seen := map[string]bool{}
		for _, name := range matches(t, text, `(?m)^(?:param|var|resource|module|func|type) (\w+)`) {
			if seen[name] {
				t.Errorf("%s declares %s twice", path, name)
			}
			seen[name] = true
		}
	}
}

// TestPlans checks that all lists of the plans are the same, and that make builds a package for
// each plan.
func TestPlans(t *testing.T) {
	fields := func(text string) []string {
		return slices.Sorted(strings.FieldsFuncSeq(
			text, func(r rune) bool { return strings.ContainsRune(" ',|\n", r) }))
	}
	want := fields(matches(t, read(t, "main.bicep"),
		`(?m)^@allowed\(\[\n([^\]]*)\]\)\nparam plan `)[0])
	script, docs := read(t, "deploy.sh"), read(t, "../docs/deployment.md")
	for name, got := range map[string][]string{
		"deploy.sh": fields(matches(t, script, `case \$plan in '' \|([^)]*)\)`)[0]),
		"deploy.yml": fields(matches(t, read(t, "../.github/workflows/deploy.yml"),
			`options: \[as the environment has it,(.*)\]`)[0]),
		"the packages, in docs": fields(strings.Join(matches(t, docs,
			"(?m)^\\| ([^|]*) \\| `build/tiney-"), " ")),
		"the packages, uploaded": fields(strings.Join(matches(t, script,
			`(?m)^ *([\w |]+)\) package=`), " ")),
	} {
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	makefile, packages := read(t, "../Makefile"), regexp.MustCompile(`build/tiney-[\w-]+\.zip`)
	for _, name := range packages.FindAllString(script+docs, -1) {
		if !strings.Contains(makefile, "-zip "+name+"\n") {
			t.Errorf("make does not build %s", name)
		}
	}
}

// TestAutoscale checks that after one instance was removed, the others are not so busy that one is
// added.
func TestAutoscale(t *testing.T) {
	rules := matches(t, read(t, "modules/site-web.bicep"),
		`(?s)    direction: '(\w+)'\n    operator: '\w+'\n    percent: \d+\n`)
	text := read(t, "modules/site-web.bicep")
	percent := func(direction, operator string) (n int) {
		fmt.Sscan(matches(t, text, `direction: '`+direction+`'\n    operator: '`+operator+
			`'\n    percent: (\d+)\n`)[0], &n)
		return n
	}
	if up, down := percent("Increase", "GreaterThan"),
		percent("Decrease", "LessThan"); len(rules) != 2 || 2*down >= up {
		t.Errorf("%q: an instance more above %d %%, one less below %d %%", rules, up, down)
	}
}

// TestImagePort checks that App Service sends requests to the port on which the image listens.
func TestImagePort(t *testing.T) {
	port := matches(t, read(t, "modules/site-web.bicep"), `WEBSITES_PORT: '(\d+)'`)[0]
	if image := matches(t, read(t, "Dockerfile"), ` PORT=(\d+)\s`)[0]; port != image {
		t.Errorf("the image listens on %s, and requests go to %s", image, port)
	}
}

// TestAzd checks that azd finds the site by its tag, and packs the folder that its hook fills.
func TestAzd(t *testing.T) {
	config := read(t, "../azure.yaml")
	service := matches(t, config, `(?m)^services:\n  (\w+):$`)[0]
	if tag := matches(t, read(t, "main.bicep"), `'azd-service-name': '(\w+)'`)[0]; tag != service {
		t.Errorf("the site has the tag %s, and azure.yaml the service %s", tag, service)
	}
	if dist, dir := matches(t, config, `(?m)^    dist: (\S+)$`)[0],
		matches(t, config, `-os linux -arch amd64 -dir (\S+)\n`)[0]; dist != dir {
		t.Errorf("the hook fills %s, and azd packs %s", dir, dist)
	}
	if !strings.Contains(read(t, "main.parameters.json"), `"${ADMIN_KEY=}"`) {
		t.Error("azd passes no admin key")
	}
	// The hooks run as azd runs them: with the environment's values, by sh.
	hook := func(name string, env ...string) string {
		t.Helper()
		script := strings.ReplaceAll(matches(t, config,
			`(?m)^  `+name+`:\n    shell: sh\n    run: \|\n((?:      .*\n)+)`)[0], "      ", "")
		dir := t.TempDir()
		// This azd shows its arguments, and the file that the last of them names.
		stub(t, dir, "azd", "echo \"azd $*\"\n"+
			`for last; do :; done; ls -l "$last" | cut -c 1-10; cat "$last"`)
		cmd := exec.CommandContext(t.Context(), "sh", "-e", "-c", script)
		temporary := t.TempDir()
		cmd.Env = append(os.Environ(), append(env, "PATH="+dir+":"+os.Getenv("PATH"),
			"TMPDIR="+temporary)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v, %s", name, err, out)
		}
		if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
			t.Errorf("%s leaves %v behind (%v)", name, left, err)
		}
		return string(out)
	}
	if made := hook("preprovision"); !regexp.MustCompile(
		`^azd env set --file /\S+\n-rw-------\nADMIN_KEY=[0-9A-Za-z]{43}\n$`).MatchString(made) {
		t.Errorf("before a deployment it runs %s", made)
	}
	if made := hook("preprovision", "ADMIN_KEY=there"); made != "" {
		t.Errorf("with a key it runs %s", made)
	}
	if said := hook("postdeploy", "baseUrl=https://tiney.example"); said !=
		"Sign in at https://tiney.example/manage with the admin key: azd env get-value ADMIN_KEY\n" {
		t.Errorf("after a deployment it says %s", said)
	}
	// The name of the output of main.bicep.
	if !strings.Contains(read(t, "main.bicep"), "\noutput baseUrl string") {
		t.Error("main.bicep has no output baseUrl")
	}
}

// TestDevContainer checks that the dev container has the module's version of Go, and the version of
// Node.js in all of GitHub's tests.
func TestDevContainer(t *testing.T) {
	container := read(t, "../.devcontainer/devcontainer.json")
	if !json.Valid([]byte(container)) {
		t.Error("the dev container's description is no JSON")
	}
	is := slices.Concat(matches(t, container, `/go:(\d+\.\d+)-`),
		matches(t, container, `/node:1": \{ "version": "(\d+)"`))
	want := slices.Concat(matches(t, read(t, "../go.mod"), `(?m)^go (\d+\.\d+)`),
		slices.Compact(matches(t, read(t, "../.github/workflows/build.yml"),
			`node-version: (\d+)`)))
	if !slices.Equal(is, want) {
		t.Errorf("the dev container has Go and Node.js %v, want %v", is, want)
	}
}

// TestDocsRegisterProviders checks that the docs register all providers in use. Somebody with
// rights on the group alone can deploy only resources of registered providers.
func TestDocsRegisterProviders(t *testing.T) {
	var want []string
	for _, text := range bicepFiles(t) {
		for _, found := range regexp.MustCompile(
			`'(Microsoft\.\w+)/[\w/]+[@']`).FindAllStringSubmatch(text, -1) {
			// Every subscription has the provider Microsoft.Authorization.
			if !slices.Contains(want, found[1]) && found[1] != "Microsoft.Authorization" {
				want = append(want, found[1])
			}
		}
	}
	var got []string
	for _, name := range strings.Fields(strings.ReplaceAll(matches(t, read(t,
		"../docs/deployment.md"), `(?s)for name in ([^;]*); do az provider register `)[0],
		"\\", "")) {
		got = append(got, "Microsoft."+name)
	}
	slices.Sort(want)
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("docs/deployment.md registers %v, want %v", got, want)
	}
}

// TestBicepWarningsFail runs make lint with stubs of bicep and of az that print what Bicep prints
// for several mistakes, or for none.
func TestBicepWarningsFail(t *testing.T) {
	const file = "/infra/modules/availability.bicep"
	const warns = `echo "WARNING: ` + file + `(27,15) : Warning BCP081: Resource type ` +
		`\"x@2026-01-01\" does not have types available. [https://aka.ms/bicep]" >&2`
	const missing = "NOT CHECKED: the Bicep files, since neither bicep nor az bicep is there.\n"
	for name, test := range map[string]struct {
		az, bicep string // their scripts; "": there is none
		says      string
		fails     bool
	}{
		"nothing is wrong":        {`echo "{}"`, "", "", false},
		"nothing is wrong, no az": {"", `echo "{}"`, "", false},
		"there is a newer Bicep": {`echo "{}"; echo "WARNING: A new Bicep release is available" >&2`,
			"", "", false},
		"a type that is not there": {`echo "{}"; ` + warns, "", "BCP081", true},
		"the same, no az":          {"", `echo "{}"; ` + warns, "BCP081", true},
		"bicep goes first":         {"exit 1", `echo "{}"`, "", false},
		"an error": {`[ $2 = version ] || { echo "{}"; echo "ERROR: ` + file +
			`(1,1) : Error BCP018: Expected the \"=\" character. [x]" >&2; exit 1; }`,
			"", "BCP018", true},
		"an error of another form": {`[ $2 = version ] || { echo "it crashed" >&2; exit 1; }`,
			"", "it crashed", true},
		"the linter warns": {`[ $2 != lint ] || echo "` + file +
			`(1,7) : Warning no-unused-vars: Variable \"x\" is declared but never used. [x]"`,
			"", "no-unused-vars", true},
		"the linter fails, silently": {`[ $2 != lint ]`, "", "\n", true},
		"no Bicep":                   {"exit 1", "", missing, false},
		"no az":                      {"", "", missing, false},
	} {
		bin := t.TempDir()
		for tool, script := range map[string]string{"az": test.az, "bicep": test.bicep} {
			if script != "" {
				stub(t, bin, tool, script)
			}
		}
		for _, tool := range []string{"sh", "grep"} {
			path, err := exec.LookPath(tool)
			if err == nil {
				err = os.Symlink(path, filepath.Join(bin, tool))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.CommandContext(t.Context(), "make", "-C", "..", "--no-print-directory", "lint")
		cmd.Env = []string{"PATH=" + bin} // an az or bicep of this machine is not asked
		out, err := cmd.CombinedOutput()
		if (err != nil) != test.fails || !strings.Contains(string(out), test.says) {
			t.Errorf("%s: %v, and it says %s", name, err, out)
		}
	}
	if makefile := read(t, "../Makefile"); !strings.Contains(makefile, " lint\n\t$(MAKE) package\n") {
		t.Error("make check does not lint")
	}
}

// TestBicepIsFormatted runs the build's step with stubs of az that change a file, or none.
func TestBicepIsFormatted(t *testing.T) {
	build := read(t, "../.github/workflows/build.yml")
	formatted := step(t, build, `^      - name: Look whether the Bicep .*\n`)
	if !strings.Contains(build, "\n      - run: make lint\n") {
		t.Error("build.yml does not lint")
	}
	for name, test := range map[string]struct {
		az   string
		fail bool
	}{
		"nothing changes":                {"", false},
		"a module changes":               {`case $4 in *network.bicep) echo >>"$4" ;; esac`, true},
		"main changes":                   {`case $4 in *main.bicep) echo >>"$4" ;; esac`, true},
		"it fails":                       {"exit 1", true},
		"it does nothing but formatting": {`[ "$1 $2 $3" = "bicep format --file" ]`, false},
	} {
		dir := t.TempDir()
		for file, text := range bicepFiles(t) {
			path := filepath.Join(dir, "infra", file)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
				os.WriteFile(path, []byte(text), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		stub(t, dir, "az", test.az)
		cmd := asGitHub(t, "git init -q . && git add infra\n"+formatted, dir,
			"GIT_CONFIG_GLOBAL=/dev/null")
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); (err != nil) != test.fail {
			t.Errorf("%s: %v, %s", name, err, out)
		}
	}
}

// An action runs with the rights to deploy. So each is named by its commit, which nobody can move.
func TestWorkflows(t *testing.T) {
	pinned := regexp.MustCompile(`^\S+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
	// Releases and deployments are compiled by the same version of Bicep that has compiled and
	// linted the files before.
	bicep := func(file string) []string {
		return matches(t, read(t, "../.github/workflows/"+file), `az bicep install\b(.*?) #`)
	}
	built := bicep("build.yml")
	if !regexp.MustCompile(`^ --version v\d+\.\d+\.\d+$`).MatchString(built[0]) {
		t.Errorf("build.yml installs Bicep %q", built)
	}
	for _, file := range []string{"release.yml", "deploy.yml"} {
		if installed := bicep(file); !slices.Equal(built, installed) {
			t.Errorf("build.yml has Bicep %q, %s %q", built, file, installed)
		}
	}
	for _, file := range []string{"backup.yml", "build.yml", "deploy.yml", "release.yml"} {
		text := read(t, "../.github/workflows/"+file)
		for _, action := range matches(t, text, `uses: (.*)`) {
			if !pinned.MatchString(action) {
				t.Errorf("%s uses %s", file, action)
			}
		}
		if writes := strings.Count(text, "contents: write"); writes > 0 && file != "release.yml" {
			t.Errorf("%s may write", file)
		}
		if strings.Count(text, "persist-credentials: false") != strings.Count(text,
			"uses: actions/checkout@") {
			t.Errorf("%s leaves its token in the folder that it builds in", file)
		}
		if strings.Contains(text, "secrets.") ||
			!strings.Contains(text, "\npermissions:\n  contents: read\n") {
			t.Errorf("%s has a secret, or a token that may do more than read", file)
		}
	}
}

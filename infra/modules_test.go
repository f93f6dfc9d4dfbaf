package infra_test

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// module is one Bicep file, as far as the tests here read it.
type module struct {
	required, optional map[string]bool   // parameters, by name
	values             map[string]string // the text of each variable
	outputs            map[string]bool
	declared           map[string]bool // resources and modules
	calls              []moduleCall
	decides            []string // the texts that decide which resources there are, and their names
}

// moduleCall is the deployment of a module.
type moduleCall struct {
	symbol, file, name string
	params             map[string]string // the text of each value
	excused            map[string]bool   // parameters behind a #disable-next-line
	dependsOn          []string
}

var (
	statement = regexp.MustCompile(`(?m)^(param|var|resource|module|output) (\w+)(.*)$`)
	decider   = regexp.MustCompile(
		`(?m)^(?:resource|module) .*? if \((.*)\) \{$|^  for .*? in (.*?): (?:if \((.*)\) )?\{$|` +
			`^(?:  |    )(?:name|scope): (.*)$`)
	disabled = regexp.MustCompile(`^\s*#disable-next-line (what-if-short-circuiting)$`)
	word     = regexp.MustCompile(`[A-Za-z_]\w*`)
	outputOf = regexp.MustCompile(`\b(\w+)(?:\[\d\])?!?\.outputs\.(\w+)`)
	// atRunTime matches what Azure knows only once something is deployed.
	atRunTime = regexp.MustCompile(`\.outputs\b|\.properties\b|\blistKeys\(|\breference\(`)
)

// parseModule reads a file in the layout of bicep format.
func parseModule(text string) (m module) {
	m = module{required: map[string]bool{}, optional: map[string]bool{},
		values: map[string]string{}, outputs: map[string]bool{}, declared: map[string]bool{}}
	starts := statement.FindAllStringSubmatchIndex(text, -1)
	for i, at := range starts {
		end := len(text)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		kind, name, rest := text[at[2]:at[3]], text[at[4]:at[5]], text[at[4]:end]
		// Only lines of this statement are indented, or close it.
		var lines []string
		for j, line := range strings.Split(rest, "\n") {
			if j > 0 && (line == "" || !strings.ContainsAny(line[:1], " ])}")) {
				break
			}
			if !strings.HasPrefix(strings.TrimSpace(line), "//") {
				lines = append(lines, line)
			}
		}
		rest = strings.Join(lines, "\n")
		switch kind {
		case "param":
			if strings.Contains(lines[0], " = ") {
				m.optional[name] = true
			} else {
				m.required[name] = true
			}
		case "var":
			m.values[name] = rest
		case "output":
			m.outputs[name] = true
		default:
			m.declared[name] = true
			for _, found := range decider.FindAllStringSubmatch(kind+" "+rest, -1) {
				m.decides = append(m.decides, found[1:]...)
			}
			if kind == "module" {
				m.calls = append(m.calls, parseCall(name, lines))
			}
		}
	}
	return m
}

// parseCall reads a module statement.
func parseCall(symbol string, lines []string) moduleCall {
	c := moduleCall{symbol: symbol, params: map[string]string{}, excused: map[string]bool{}}
	c.file = strings.Split(lines[0], "'")[1]
	indent, within, param, excuse := "", "", "", false
	for _, line := range lines[1:] {
		text := strings.TrimSpace(line)
		property, isProperty := strings.CutPrefix(line, indent)
		switch {
		case text == "params: {", text == "dependsOn: [":
			within, indent = text, line[:strings.Index(line, text)]+"  "
		case within == "" && strings.HasPrefix(text, "name: "):
			c.name = strings.TrimPrefix(text, "name: ")
		case within != "" && line == indent[2:]+"}", within != "" && line == indent[2:]+"]":
			within, indent = "", ""
		case within == "dependsOn: [":
			c.dependsOn = append(c.dependsOn, text)
		case within == "params: {" && disabled.MatchString(line):
			excuse = true
		case within == "params: {" && isProperty && regexp.MustCompile(`^\w+: `).MatchString(property):
			param, c.params[strings.SplitN(property, ":", 2)[0]] = strings.SplitN(property, ":", 2)[0],
				strings.SplitN(property, ": ", 2)[1]
			c.excused[param], excuse = excuse, false
		case within == "params: {":
			c.params[param] += "\n" + line
		}
	}
	return c
}

// withoutStrings returns a text without what its strings say. What they insert stays.
func withoutStrings(text string) string {
	var b strings.Builder
	within := []bool{false} // whether a string is open, by the depth of insertions
	for i := 0; i < len(text); i++ {
		last := len(within) - 1
		switch {
		case within[last] && text[i] == '\\':
			i++
		case within[last] && strings.HasPrefix(text[i:], "${"):
			within, i = append(within, false), i+1
			b.WriteByte(' ')
		case text[i] == '\'':
			within[last] = !within[last]
		case within[last]:
		case text[i] == '}' && last > 0: // no object is in a string
			within = within[:last]
			b.WriteByte(' ')
		default:
			b.WriteByte(text[i])
		}
	}
	return b.String()
}

// expand returns a text with the texts of all variables that it uses, without what strings say.
func (m module) expand(text string) string {
	seen, all := map[string]bool{}, ""
	var add func(string)
	add = func(text string) {
		text = withoutStrings(text)
		all += text + "\n"
		for _, name := range word.FindAllString(text, -1) {
			if value, ok := m.values[name]; ok && !seen[name] {
				seen[name] = true
				add(value)
			}
		}
	}
	add(text)
	return all
}

// moduleProblems returns what is wrong with the calls of modules in the files.
func moduleProblems(files map[string]string) (problems []string) {
	problem := func(format string, arguments ...any) {
		problems = append(problems, fmt.Sprintf(format, arguments...))
	}
	modules := map[string]module{}
	for file, text := range files {
		modules[file] = parseModule(text)
	}
	called := func(from string, c moduleCall) string { return path.Join(path.Dir(from), c.file) }

	// deciding has the parameters of a file that decide which resources it has, and their names.
	var deciding func(file string) map[string]bool
	deciding = func(file string) map[string]bool {
		m, found := modules[file], map[string]bool{}
		texts := slices.Clone(m.decides)
		for _, c := range m.calls {
			for param := range deciding(called(file, c)) {
				texts = append(texts, c.params[param])
			}
		}
		for _, text := range texts {
			for _, name := range word.FindAllString(m.expand(text), -1) {
				if m.required[name] || m.optional[name] {
					found[name] = true
				}
			}
		}
		return found
	}

	for file, m := range modules {
		names, off := map[string]string{}, 0 // off: how often the rule is switched off
		for _, c := range m.calls {
			target := called(file, c)
			to, ok := modules[target]
			if !ok {
				problem("%s deploys %s, which is not there", file, target)
				continue
			}
			for name := range c.params {
				if !to.required[name] && !to.optional[name] {
					problem("%s gives %s %s, which is no parameter of it", file, c.symbol, name)
				}
			}
			for name := range to.required {
				if _, ok := c.params[name]; !ok {
					problem("%s gives %s no %s", file, c.symbol, name)
				}
			}
			for _, one := range c.dependsOn {
				if !m.declared[one] {
					problem("%s: %s depends on %s, which is not there", file, c.symbol, one)
				}
			}
			// Two modules of which there is one at most may share a name.
			if other, ok := names[c.name]; ok && !strings.HasSuffix(target, "-flex.bicep") {
				problem("%s deploys %s and %s under one name", file, other, c.symbol)
			}
			names[c.name] = c.symbol
			roles := strings.HasSuffix(target, "-roles.bicep")
			if roles != strings.HasSuffix(c.name, "-roles'") {
				problem("%s deploys %s as %s", file, target, c.name)
			}
			decides := deciding(target)
			for name, value := range c.params {
				late := decides[name] && atRunTime.MatchString(m.expand(value))
				excused := c.excused[name]
				if excused {
					off++
				}
				switch {
				case late && !roles:
					problem("%s: what-if leaves %s out, because of %s", file, c.symbol, name)
				case late != excused:
					problem("%s: %s has %s known late: %t, and the rule off: %t", file, c.symbol, name,
						late, excused)
				}
			}
		}
		for _, found := range outputOf.FindAllStringSubmatch(files[file], -1) {
			at := slices.IndexFunc(m.calls, func(c moduleCall) bool { return c.symbol == found[1] })
			if at < 0 || !modules[called(file, m.calls[at])].outputs[found[2]] {
				problem("%s uses %s, which is not there", file, found[0])
			}
		}
		if strings.Count(files[file], "what-if-short-circuiting") != off {
			problem("%s switches the rule off elsewhere", file)
		}
	}
	return problems
}

// makers are the modules of main.bicep that make what a variable or property names.
var makers = map[string]string{"insightsName": "monitoring", "workspaceName": "monitoring",
	"actionGroupName": "monitoring", "dataStorageName": "dataStorage", "networkName": "network",
	"edgeName": "edge", "hostStorageName": "hostStorage"}

// orderProblems returns the modules of main.bicep that are deployed before what they need. No
// output tells Azure the order where a name is passed.
func orderProblems(main string) (problems []string) {
	m := parseModule(main)
	after := map[string][]string{} // the modules that each one waits for
	for _, c := range m.calls {
		after[c.symbol] = slices.Clone(c.dependsOn)
		for _, value := range c.params {
			for _, found := range outputOf.FindAllStringSubmatch(m.expand(value), -1) {
				after[c.symbol] = append(after[c.symbol], found[1])
			}
		}
	}
	var waits func(one, other string) bool
	waits = func(one, other string) bool {
		return slices.ContainsFunc(after[one], func(next string) bool {
			return next == other || waits(next, other)
		})
	}
	need := func(one, other string) {
		if one != other && !waits(one, other) {
			problems = append(problems, one+" does not wait for "+other)
		}
	}
	for _, c := range m.calls {
		for _, value := range c.params {
			for _, name := range word.FindAllString(m.expand(value), -1) {
				if maker := makers[name]; maker != "" {
					need(c.symbol, maker)
				}
			}
		}
	}
	for _, site := range []string{"consumption", "web", "flex"} {
		for _, c := range m.calls {
			if strings.HasSuffix(c.file, "-roles.bicep") &&
				(site != "web" || c.symbol != "hostStorageRoles") {
				need(site, c.symbol)
			}
		}
	}
	need("flex", "hostEndpoints")
	return problems
}

// TestModules checks that each module gets the parameters that it has, and that what-if shows all
// resources but role assignments: nothing that Azure tells only after a deployment decides which
// resources a module has, and their names. It also makes one thing wrong at a time.
func TestModules(t *testing.T) {
	files := bicepFiles(t)
	for _, problem := range moduleProblems(files) {
		t.Error(problem)
	}
	for _, problem := range orderProblems(files["main.bicep"]) {
		t.Error(problem)
	}
	for _, wrong := range []struct{ from, to, want string }{
		{"      monitoringRoles\n      dataStorageRoles\n    ]", "      monitoringRoles\n    ]",
			"web does not wait for dataStorageRoles"},
		{"      hostStorageRoles\n      hostEndpoints\n", "      hostEndpoints\n",
			"flex does not wait for hostStorageRoles"},
		{"      hostEndpoints\n", "", "flex does not wait for hostEndpoints"},
		{"    dataStorage\n    network\n", "    network\n",
			"dataEndpoints does not wait for dataStorage"},
		{"    hostStorage\n    network\n", "    hostStorage\n",
			"hostEndpoints does not wait for network"},
		{"    edge\n    consumption\n", "    consumption\n", ""}, // their settings need its outputs
		{"  dependsOn: [\n    monitoring\n  ]\n", "", "monitoringRoles does not wait for monitoring"},
		{"      hostStorage\n      hostStorageRoles\n    ]", "    ]",
			"consumption does not wait for hostStorage"},
	} {
		changed := strings.Replace(files["main.bicep"], wrong.from, wrong.to, 1)
		found := strings.Join(orderProblems(changed), "\n")
		if changed == files["main.bicep"] || (found == "") != (wrong.want == "") ||
			!strings.Contains(found, wrong.want) {
			t.Errorf("%q for %q: want %q, found\n%s", wrong.to, wrong.from, wrong.want, found)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		m := parseModule(files[path])
		if len(m.declared) == 0 || strings.Contains(files[path], "\nparam ") && len(m.required)+
			len(m.optional) != strings.Count(files[path], "\nparam ") {
			t.Errorf("%s was not understood", path)
		}
	}
	if !strings.Contains(read(t, "bicepconfig.json"),
		"\"what-if-short-circuiting\": {\n          \"level\": \"warning\"") {
		t.Error("bicepconfig.json does not have the compiler look")
	}

	for _, wrong := range []struct{ file, from, to, want string }{
		{"main.bicep", "    dailyCapGB: logDailyCapGB\n", "", "gives monitoring no dailyCapGB"},
		{"main.bicep", "    dailyCapGB: ", "    dailyCap: ", "which is no parameter"},
		{"main.bicep", "      hostStorageKey: hostStorageKey\n", "", "consumption no hostStorageKey"},
		{"main.bicep", "    accountName: dataStorageName\n    services",
			"    accountName: dataStorage.outputs.name\n    services", "leaves dataEndpoints out"},
		{"main.bicep", "var insightsName = '${prefix}-insights-${suffix}'",
			"var insightsName = monitoring.outputs.name", "leaves web out, because of applicationIns"},
		{"main.bicep", "var insightsName = '${prefix}-insights-${suffix}'",
			"var insightsName = monitoring.outputs.name", "uses monitoring.outputs.name"},
		{"main.bicep", "frontDoorName: length(sites) > 1 ? edgeName : ''",
			"frontDoorName: length(sites) > 1 ? edge!.outputs.endpointHostName : ''",
			"leaves alerts out"},
		{"main.bicep", "    profileName: edgeName\n",
			"    profileName: identity.properties.clientId\n", "leaves edgeRoute out"},
		{"main.bicep", "    lockContainerName: lockContainerName\n    workspaceId",
			"    lockContainerName: identity.properties.clientId\n    workspaceId",
			"leaves dataStorage out"},
		{"main.bicep", "      name: site.hostStorageName\n",
			"      name: '${edge!.outputs.frontDoorId}'\n", "leaves hostStorage out"},
		{"main.bicep", "    #disable-next-line what-if-short-circuiting\n", "", "the rule off: false"},
		{"main.bicep", "    location: location\n    tags: tags\n    retention",
			"    #disable-next-line what-if-short-circuiting\n    location: location\n    tags: tags\n" +
				"    retention",
			"the rule off: true"},
		{"main.bicep", "    dataStorage\n    network\n", "    dataStorage\n    nets\n",
			"depends on nets"},
		{"main.bicep", "'${name}-data-endpoints'", "'${name}-data-storage'", "under one name"},
		{"main.bicep", "'${name}-monitoring-roles'", "'${name}-monitoring-2'", "deploys modules"},
		{"main.bicep", "edge!.outputs.frontDoorId", "edge!.outputs.id", "uses edge!.outputs.id"},
		{"main.bicep", "'modules/network.bicep'", "'modules/net.bicep'", "which is not there"},
		{"modules/site-flex.bicep", "    applicationInsightsName: applicationInsightsName\n",
			"    applicationInsightsName: site.properties.defaultHostName\n",
			"leaves siteSettings out"},
		{"modules/site-web.bicep", "param name string", "param name string = 'x'", ""},
		{"modules/alerts.bicep", "if (!empty(frontDoorName))", "if (!empty(actionGroupId))", ""},
		{"modules/monitoring.bicep", "if (!empty(alertEmail))", "if (retentionDays > 30)", ""},
	} {
		changed := maps.Clone(files)
		changed[wrong.file] = strings.Replace(files[wrong.file], wrong.from, wrong.to, 1)
		found := strings.Join(moduleProblems(changed), "\n")
		if changed[wrong.file] == files[wrong.file] || (found == "") != (wrong.want == "") ||
			!strings.Contains(found, wrong.want) {
			t.Errorf("%q for %q: want %q, found\n%s", wrong.to, wrong.from, wrong.want, found)
		}
	}
}

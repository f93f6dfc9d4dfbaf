package infra_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"tiney/internal/bicep"
)

// template is a folder with main.bicep, the modules that it uses, and parameter files.
type template struct {
	folder   string
	files    map[string]*bicep.File // by their paths in the folder, with slashes
	problems []string
}

// load reads the templates in some folders, all at once since starting node takes longest.
func load(folders ...string) ([]*template, error) {
	var templates []*template
	var paths []string
	var names []func(*bicep.File)
	for _, folder := range folders {
		t := &template{folder: folder, files: map[string]*bicep.File{}}
		templates = append(templates, t)
		err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".bicep" {
				return err
			}
			name, err := filepath.Rel(folder, path)
			paths = append(paths, path)
			names = append(names, func(file *bicep.File) { t.files[filepath.ToSlash(name)] = file })
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	files, err := bicep.Parse(paths...)
	if err != nil {
		return nil, err
	}
	for i, file := range files {
		names[i](file)
	}
	return templates, nil
}

// check returns what is wrong with the template, as far as it can be known without the Bicep compiler.
func (t *template) check() []string {
	for _, path := range slices.Sorted(maps.Keys(t.files)) {
		file := t.files[path]
		for _, e := range file.Errors {
			t.problem(path, e.Line, "%s", e.Text)
		}
		t.checkNames(path, file)
		t.checkReferences(path, file)
		t.checkLoads(path, file)
		t.checkText(path, file)
		for _, d := range file.Declarations {
			switch d.Kind {
			case "param":
				t.checkParameter(path, d)
			case "resource":
				t.checkResource(path, file, d)
			case "module":
				t.checkModule(path, d)
			case "output":
				t.checkOutput(path, file, d)
			}
			t.checkDependsOn(path, d)
		}
	}
	t.checkModulesUsed()
	t.checkParameterFiles()
	return t.problems
}

func (t *template) problem(path string, line int, format string, arguments ...any) {
	t.problems = append(t.problems, fmt.Sprintf("%s:%d: ", path, line)+fmt.Sprintf(format, arguments...))
}

// checkNames finds what is declared twice. Outputs have names of their own.
func (t *template) checkNames(path string, file *bicep.File) {
	seen := map[string]bool{}
	for _, d := range file.Declarations {
		name := d.Name
		if d.Kind == "output" {
			name = "output " + name
		}
		if seen[name] {
			t.problem(path, d.Line, "%s is declared twice", name)
		}
		seen[name] = true
	}
}

// checkReferences finds names that nothing declares, and parameters, variables and existing resources that nothing uses.
func (t *template) checkReferences(path string, file *bicep.File) {
	declared, used := map[string]bool{}, map[string]bool{}
	for _, d := range file.Declarations {
		declared[d.Name] = declared[d.Name] || d.Kind != "output"
	}
	for _, d := range file.Declarations {
		for _, reference := range d.Value.References() {
			used[reference.Text] = true
			if !declared[reference.Text] {
				t.problem(path, reference.Line, "%s is not declared", reference.Text)
			}
		}
		t.checkOutputReferences(path, file, d)
	}
	for _, d := range file.Declarations {
		if !used[d.Name] && (d.Kind == "param" || d.Kind == "var" || d.Existing) {
			t.problem(path, d.Line, "%s %s is not used", d.Kind, d.Name)
		}
	}
}

// checkOutputReferences finds MODULE.outputs.NAME where the module has no such output.
func (t *template) checkOutputReferences(path string, file *bicep.File, d *bicep.Declaration) {
	d.Value.Walk(func(n *bicep.Node) bool {
		outputs := n.Child(0)
		if n.Type != "member_expression" || outputs.Child(1).String() != "outputs" {
			return true
		}
		name := outputs.Child(0)
		if name.Type == "nullable_type" {
			name = name.Child(0)
		}
		module := file.Declared("module", name.String())
		if module == nil {
			return true
		}
		if target := t.module(path, module); target != nil && target.Declared("output", n.Child(1).String()) == nil {
			t.problem(path, n.Line, "%s has no output %s", module.Of, n.Child(1).String())
		}
		return true
	})
}

// checkLoads finds files that are to be loaded and are not there.
func (t *template) checkLoads(path string, file *bicep.File) {
	file.Root.Walk(func(n *bicep.Node) bool {
		if n.Type == "call_expression" && strings.HasPrefix(n.Child(0).String(), "load") {
			name := n.Child(1).Child(0).String()
			if _, err := os.Stat(filepath.Join(t.folder, filepath.Dir(path), filepath.FromSlash(name))); err != nil {
				t.problem(path, n.Line, "%s is not there", name)
			}
		}
		return true
	})
}

var hosts = regexp.MustCompile(`(?i)core\.windows\.net|azurewebsites\.net|azurefd\.net|management\.azure\.com|login\.microsoftonline\.com|applicationinsights\.azure\.com`)

// checkText finds addresses that differ from cloud to cloud, and the region of the group where a parameter should say.
func (t *template) checkText(path string, file *bicep.File) {
	file.Root.Walk(func(n *bicep.Node) bool {
		switch {
		case n.Type == "string" && hosts.MatchString(n.String()):
			t.problem(path, n.Line, "an address of one cloud: %s", n.String())
		case n.Type == "member_expression" && n.Child(0).Child(0).String() == "resourceGroup" && n.Child(1).String() == "location":
			t.problem(path, n.Line, "the region is a parameter, not the group's")
		}
		return true
	})
}

func (t *template) checkParameter(path string, d *bicep.Declaration) {
	if strings.TrimSpace(d.Decorators["description"].Child(0).String()) == "" {
		t.problem(path, d.Line, "param %s has no description", d.Name)
	}
	if d.Value != nil && d.Value.Literal() {
		if err := fits(d, d.Value.String(), d.Value.Type); err != nil {
			t.problem(path, d.Line, "the default of param %s %v", d.Name, err)
		}
	}
}

// fits says why a value, written as the node type that a Bicep file has for it, is none for a parameter.
func fits(d *bicep.Declaration, value, kind string) error {
	if want := map[string]string{"string": "string", "int": "number", "bool": "boolean", "array": "array", "object": "object"}[d.Of]; kind != want {
		return fmt.Errorf("is a %s, not a %s", kind, d.Of)
	}
	limit := func(name string) (int64, bool) {
		n, err := strconv.ParseInt(d.Decorators[name].Child(0).String(), 10, 64)
		return n, err == nil
	}
	size := int64(len(value))
	low, high := "minLength", "maxLength"
	if d.Of == "int" {
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return fmt.Errorf("is no whole number: %s", value)
		}
		size, low, high = n, "minValue", "maxValue"
	}
	if d.Of == "int" || d.Of == "string" {
		if least, ok := limit(low); ok && size < least {
			return fmt.Errorf("is below its @%s", low)
		}
		if most, ok := limit(high); ok && size > most {
			return fmt.Errorf("is above its @%s", high)
		}
	}
	if allowed := d.Decorators["allowed"].Child(0); allowed != nil {
		if !slices.ContainsFunc(allowed.Children, func(n *bicep.Node) bool { return n.String() == value }) {
			return fmt.Errorf("is not allowed: %s", value)
		}
	}
	return nil
}

// versions are the API versions in use, one for each type, so that nobody has to know two of them.
var versions = map[string]string{
	"Microsoft.Authorization/roleAssignments":                   "2022-04-01",
	"Microsoft.Cdn/profiles":                                    "2024-02-01",
	"Microsoft.Consumption/budgets":                             "2024-08-01",
	"Microsoft.Insights/actionGroups":                           "2023-01-01",
	"Microsoft.Insights/components":                             "2020-02-02",
	"Microsoft.Insights/diagnosticSettings":                     "2021-05-01-preview", // there is no other
	"Microsoft.Insights/metricAlerts":                           "2018-03-01",
	"Microsoft.Insights/scheduledQueryRules":                    "2023-12-01",
	"Microsoft.Insights/webtests":                               "2022-06-15",
	"Microsoft.Insights/workbooks":                              "2022-04-01",
	"Microsoft.ManagedIdentity/userAssignedIdentities":          "2024-11-30",
	"Microsoft.Network/FrontDoorWebApplicationFirewallPolicies": "2024-02-01",
	"Microsoft.OperationalInsights/workspaces":                  "2025-07-01",
	"Microsoft.Storage/storageAccounts":                         "2025-06-01",
	"Microsoft.Web/certificates":                                "2025-03-01",
	"Microsoft.Web/serverfarms":                                 "2025-03-01",
	"Microsoft.Web/sites":                                       "2025-03-01",
}

func (t *template) checkResource(path string, file *bicep.File, d *bicep.Declaration) {
	of, version, _ := strings.Cut(d.Of, "@")
	segments := strings.Split(of, "/")
	if want := versions[strings.Join(segments[:min(2, len(segments))], "/")]; version != want {
		t.problem(path, d.Line, "%s has the API version %q, want %q", of, version, want)
	}
	body := d.Body()
	if body.Property("name") == nil {
		t.problem(path, d.Line, "resource %s has no name", d.Name)
	}
	if len(segments) > 2 {
		parent := body.Property("parent").String()
		declared := file.Declared("resource", parent)
		if declared == nil || !strings.HasPrefix(declared.Of, strings.Join(segments[:len(segments)-1], "/")+"@") {
			t.problem(path, d.Line, "resource %s has no parent of the type %s", d.Name, strings.Join(segments[:len(segments)-1], "/"))
		}
	}
	if of == "Microsoft.Authorization/roleAssignments" || of == "Microsoft.Insights/diagnosticSettings" {
		if file.Declared("resource", body.Property("scope").String()) == nil {
			t.problem(path, d.Line, "%s %s has no resource as its scope", segments[1], d.Name)
		}
	}
	if of == "Microsoft.Authorization/roleAssignments" {
		t.checkRoleAssignment(path, d)
	}
	if location := body.Property("location"); location != nil && location.Literal() && location.String() != "global" {
		t.problem(path, d.Line, "resource %s is fixed to the region %s", d.Name, location.String())
	}
}

// checkRoleAssignment wants a name that is the same whenever the same assignment is deployed, and another one where
// anything about it differs; and a service principal, for Azure does not find a new identity at once otherwise.
func (t *template) checkRoleAssignment(path string, d *bicep.Declaration) {
	body := d.Body()
	name, properties := body.Property("name"), body.Property("properties")
	scope := body.Property("scope").String()
	var parts []string
	if name != nil && name.Type == "call_expression" && name.Child(0).String() == "guid" {
		for _, part := range name.Child(1).Children {
			parts = append(parts, source(part))
		}
	}
	role := properties.Property("roleDefinitionId")
	if len(parts) != 3 || parts[0] != scope+".id" || parts[1] != source(properties.Property("principalId")) || parts[2] != source(role.Child(1).Child(1)) {
		t.problem(path, d.Line, "the name of %s is not guid(%s.id, its principal, its role)", d.Name, scope)
	}
	if role.Child(0).String() != "subscriptionResourceId" || role.Child(1).Child(0).String() != "Microsoft.Authorization/roleDefinitions" {
		t.problem(path, d.Line, "the role of %s is not a subscriptionResourceId of Microsoft.Authorization/roleDefinitions", d.Name)
	}
	if properties.Property("principalType").String() != "ServicePrincipal" {
		t.problem(path, d.Line, "%s does not say that its principal is a ServicePrincipal", d.Name)
	}
}

// source writes an identifier or a chain of members as the file has it.
func source(n *bicep.Node) string {
	if n != nil && n.Type == "member_expression" {
		return source(n.Child(0)) + "." + n.Child(1).String()
	}
	return n.String()
}

// module returns the file that a module is, or nil.
func (t *template) module(path string, d *bicep.Declaration) *bicep.File {
	return t.files[filepath.ToSlash(filepath.Join(filepath.Dir(path), filepath.FromSlash(d.Of)))]
}

func (t *template) checkModule(path string, d *bicep.Declaration) {
	module := t.module(path, d)
	if module == nil {
		t.problem(path, d.Line, "module %s: %s is not there", d.Name, d.Of)
		return
	}
	passed := map[string]bool{}
	for _, property := range d.Body().Property("params").Properties() {
		name, value := property.Key(), property.Children[1]
		passed[name] = true
		param := module.Declared("param", name)
		if param == nil {
			t.problem(path, property.Line, "%s has no param %s", d.Of, name)
		} else if value.Literal() {
			if err := fits(param, value.String(), value.Type); err != nil {
				t.problem(path, property.Line, "the value for param %s %v", name, err)
			}
		}
	}
	for _, param := range module.Declarations {
		if param.Kind == "param" && param.Value == nil && !passed[param.Name] {
			t.problem(path, d.Line, "module %s does not get its param %s", d.Name, param.Name)
		}
	}
}

// checkOutput finds outputs without a description, and those that would show a secret to all who may read deployments.
func (t *template) checkOutput(path string, file *bicep.File, d *bicep.Declaration) {
	if strings.TrimSpace(d.Decorators["description"].Child(0).String()) == "" {
		t.problem(path, d.Line, "output %s has no description", d.Name)
	}
	seen := map[string]bool{}
	var visit func(value *bicep.Node)
	visit = func(value *bicep.Node) {
		value.Walk(func(n *bicep.Node) bool {
			name := n.Child(0).String()
			if n.Type == "call_expression" && n.Child(0).Type == "member_expression" {
				name = n.Child(0).Child(1).String()
			}
			if n.Type == "call_expression" && strings.HasPrefix(name, "list") {
				t.problem(path, d.Line, "output %s shows a key", d.Name)
			}
			return true
		})
		for _, reference := range value.References() {
			if seen[reference.Text] {
				continue
			}
			seen[reference.Text] = true
			if param := file.Declared("param", reference.Text); param != nil && param.Decorators["secure"] != nil {
				t.problem(path, d.Line, "output %s shows the secure param %s", d.Name, param.Name)
			}
			if variable := file.Declared("var", reference.Text); variable != nil {
				visit(variable.Value)
			}
		}
	}
	visit(d.Value)
}

// checkDependsOn finds what depends on something by name although it uses it anyway.
func (t *template) checkDependsOn(path string, d *bicep.Declaration) {
	body := d.Body()
	if d.Kind != "resource" && d.Kind != "module" || body.Property("dependsOn") == nil {
		return
	}
	used := map[string]bool{}
	for _, property := range body.Properties() {
		if property.Key() != "dependsOn" {
			for _, reference := range property.Children[1].References() {
				used[reference.Text] = true
			}
		}
	}
	for _, reference := range body.Property("dependsOn").References() {
		if used[reference.Text] {
			t.problem(path, reference.Line, "%s need not say that it depends on %s", d.Name, reference.Text)
		}
	}
}

// checkModulesUsed finds files that no module declaration names.
func (t *template) checkModulesUsed() {
	used := map[*bicep.File]bool{t.files["main.bicep"]: true}
	for path, file := range t.files {
		for _, d := range file.Declarations {
			if d.Kind == "module" {
				used[t.module(path, d)] = true
			}
		}
	}
	for _, path := range slices.Sorted(maps.Keys(t.files)) {
		if !used[t.files[path]] {
			t.problem(path, 1, "no module declaration names this file")
		}
	}
}

// checkParameterFiles compares parameters.*.json with main.bicep.
func (t *template) checkParameterFiles() {
	paths, _ := filepath.Glob(filepath.Join(t.folder, "parameters.*.json"))
	for _, path := range paths {
		name := filepath.Base(path)
		var content struct {
			Schema         string `json:"$schema"`
			ContentVersion string
			Parameters     map[string]struct{ Value any }
		}
		if err := readJSON(path, &content); err != nil {
			t.problem(name, 1, "%v", err)
			continue
		}
		if content.Schema != "https://schema.management.azure.com/schemas/2019-04-01/deploymentParameters.json#" || content.ContentVersion != "1.0.0.0" {
			t.problem(name, 1, "not a parameter file by its $schema and contentVersion")
		}
		for _, key := range slices.Sorted(maps.Keys(content.Parameters)) {
			param := t.files["main.bicep"].Declared("param", key)
			if param == nil {
				t.problem(name, 1, "main.bicep has no param %s", key)
				continue
			}
			value := content.Parameters[key].Value
			kind := "null"
			switch value.(type) {
			case string:
				kind = "string"
			case json.Number:
				kind = "number"
			case bool:
				kind = "boolean"
			case []any:
				kind = "array"
			case map[string]any:
				kind = "object"
			}
			if err := fits(param, fmt.Sprint(value), kind); err != nil {
				t.problem(name, 1, "%s %v", key, err)
			}
		}
		for _, d := range t.files["main.bicep"].Declarations {
			if _, given := content.Parameters[d.Name]; d.Kind == "param" && d.Value == nil && !given {
				t.problem(name, 1, "no value for param %s", d.Name)
			}
		}
	}
}

func readJSON(path string, into any) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	decoder := json.NewDecoder(file)
	decoder.UseNumber()
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

// roles are the built-in roles in use, as https://learn.microsoft.com/azure/role-based-access-control/built-in-roles
// has them.
var roles = map[string]string{
	"Monitoring Metrics Publisher":   "3913510d-42f4-4e42-8a64-420c390055eb",
	"Storage Blob Data Contributor":  "ba92f5b4-2d11-453d-a403-e96b0029c9fe",
	"Storage Blob Data Owner":        "b7e6dc6d-f1e8-4753-8033-0f276bb0955b",
	"Storage Queue Data Contributor": "974c5e8b-45b9-4653-ba55-5f855dd0fb88",
	"Storage Table Data Contributor": "0a9a7e1f-b9d0-4cc4-a60d-0319b160aaa3",
}

var guid = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// checkRoles compares the roles that each file assigns, in its variable roles, with those that it is to assign and
// with their documented IDs. No other file may assign any, and no ID may stand anywhere else.
func (t *template) checkRoles(want map[string][]string) []string {
	var problems []string
	for _, path := range slices.Sorted(maps.Keys(t.files)) {
		file := t.files[path]
		var got []string
		ids := map[*bicep.Node]bool{}
		if declared := file.Declared("var", "roles"); declared != nil {
			for _, property := range declared.Value.Properties() {
				name, id := property.Key(), property.Children[1]
				got = append(got, name)
				ids[id] = true
				if roles[name] == "" || id.String() != roles[name] {
					problems = append(problems, fmt.Sprintf("%s: %s is %s, not %s", path, name, roles[name], id.String()))
				}
			}
		}
		if slices.Sort(got); !slices.Equal(got, want[path]) {
			problems = append(problems, fmt.Sprintf("%s assigns %q, want %q", path, got, want[path]))
		}
		assigns := false
		for _, d := range file.Declarations {
			if strings.HasPrefix(d.Of, "Microsoft.Authorization/roleAssignments@") {
				assigns = true
				// Each role of the variable, and nothing else: [for role in items(roles): { … role.value … }].
				loop := d.Value.Child(1)
				role := d.Body().Property("properties").Property("roleDefinitionId").Child(1).Child(1)
				if d.Value.Type != "for_statement" || loop.Child(0).String() != "items" || loop.Child(1).Child(0).String() != "roles" ||
					source(role) != d.Value.Child(0).String()+".value" {
					problems = append(problems, fmt.Sprintf("%s: %s is not a loop over items(roles)", path, d.Name))
				}
			}
		}
		if assigns != (len(got) > 0) {
			problems = append(problems, fmt.Sprintf("%s names %q, and assigns roles: %t", path, got, assigns))
		}
		file.Root.Walk(func(n *bicep.Node) bool {
			if n.Type == "string" && !ids[n] && guid.MatchString(n.String()) {
				problems = append(problems, fmt.Sprintf("%s:%d: an ID outside the variable roles", path, n.Line))
			}
			return true
		})
	}
	return problems
}

// Checks queries in the Kusto query language against the tables of Application Insights, with Microsoft's own parser.
//
// It reads a JSON array of queries, {"name", "text"}, from stdin and writes an array of what it found, in the same
// order, to stdout. The types are in kql.go, which runs it.

import { createRequire } from "node:module";
import { readFileSync } from "node:fs";

const require = createRequire(import.meta.url);
// The package is C# made into JavaScript: it defines globals, and its runtime has to be there first.
require("@kusto/language-service-next/bridge.min.js");
require("@kusto/language-service-next/Kusto.Language.Bridge.min.js");
const { KustoCode, GlobalState, Syntax, Symbols } = globalThis.Kusto.Language;
const list = (l) => globalThis.Bridge.toArray(l);
const elements = (l) => list(l).map((separated) => separated.Element$1);

// The tables as the Logs of an Application Insights resource show them, which is not how its workspace names them.
// https://learn.microsoft.com/azure/azure-monitor/app/convert-classic-resource lists both.
const everywhere = `timestamp:datetime, itemId:string, itemType:string, customDimensions:dynamic, operation_Name:string,
  operation_Id:string, operation_ParentId:string, operation_SyntheticSource:string, session_Id:string, user_Id:string,
  user_AuthenticatedId:string, user_AccountId:string, application_Version:string, client_Type:string,
  client_Model:string, client_OS:string, client_IP:string, client_City:string, client_StateOrProvince:string,
  client_CountryOrRegion:string, client_Browser:string, cloud_RoleName:string, cloud_RoleInstance:string, appId:string,
  appName:string, iKey:string, sdkVersion:string`;
const tables = {
  requests: `id:string, source:string, name:string, url:string, success:string, resultCode:string, duration:real,
    performanceBucket:string, customMeasurements:dynamic, itemCount:int`,
  dependencies: `id:string, target:string, type:string, name:string, data:string, success:string, resultCode:string,
    duration:real, performanceBucket:string, customMeasurements:dynamic, itemCount:int`,
  customEvents: `name:string, customMeasurements:dynamic, itemCount:int`,
  customMetrics: `name:string, value:real, valueCount:int, valueSum:real, valueMin:real, valueMax:real,
    valueStdDev:real`,
  traces: `message:string, severityLevel:int, customMeasurements:dynamic, itemCount:int`,
};
// What the Logs of the workspace have beside that.
// https://learn.microsoft.com/azure/azure-monitor/reference/tables-index describes them.
const inWorkspace = {
  AppServiceConsoleLogs: `TimeGenerated:datetime, Category:string, ContainerId:string, Host:string, Level:string,
    OperationName:string, ResultDescription:string, _ResourceId:string`,
  _LogOperation: `TimeGenerated:datetime, Category:string, Operation:string, Level:string, Detail:string,
    _ResourceId:string`,
};
const table = (name, columns) => Symbols.TableSymbol.From(`(${columns})`).WithName(name);
const globals = GlobalState.Default.WithDatabase(new Symbols.DatabaseSymbol.ctor("insights", [
  ...Object.entries(tables).map(([name, columns]) => table(name, `${everywhere}, ${columns}`)),
  ...Object.entries(inWorkspace).map(([name, columns]) => table(name, columns)),
]));

const comparisons = ["==", "!=", "<>", "=~", "!~", "<", "<=", ">", ">="];
const numbers = ["int", "long", "real", "decimal", "datetime", "timespan"];

function check({ name, text }) {
  const code = KustoCode.ParseAndAnalyze(text, globals);
  const problems = [];
  const problem = (node, message) => problems.push(`${position(text, node.TextStart ?? node.Start)}: ${message}`);
  for (const d of list(code.GetDiagnostics())) {
    if (d.Severity === "Error" || d.Severity === "Warning") problem(d, `${d.Message} (${d.Code})`);
  }
  const columns = list(code.ResultType?.Columns ?? []).map((c) => ({ name: c.Name, type: c.Type.Name }));
  if (columns.length === 0) problems.push("it returns no table");

  const uses = [];
  Syntax.SyntaxElement.WalkNodes(code.Syntax, (node) => {
    if (node instanceof Syntax.PathExpression || node instanceof Syntax.ElementExpression) {
      for (const c of columnsOf(node)) {
        if (c.column !== "customDimensions" && c.column !== "customMeasurements") continue;
        if (c.key === undefined) problem(node, `the key of ${c.column} is not a literal`);
        else uses.push({ ...c, operator: "", value: "" });
      }
    }
    for (const { left, operator, right } of compared(node)) {
      const [a, b] = [left.ResultType?.Name, right.ResultType?.Name];
      // The parser lets these pass.
      if ((a === "string" && numbers.includes(b)) || (b === "string" && numbers.includes(a))) {
        problem(node, `${a} ${left.toString().trim()} is compared with ${b} ${right.toString().trim()}`);
      }
      for (const c of columnsOf(left)) {
        if (isText(right)) uses.push({ ...c, operator, value: right.LiteralValue });
        else if (b === "string" || b === "dynamic") uses.push({ ...c, operator: "unknown", value: right.toString().trim() });
      }
    }
  });
  return { name, problems, uses, columns, oneRow: givesOneRow(code.Syntax) };
}

const isText = (node) => node instanceof Syntax.LiteralExpression && typeof node.LiteralValue === "string";

// compared returns what is compared with what in this node, with a literal on the right if there is one.
function compared(node) {
  if (node instanceof Syntax.BinaryExpression) {
    const operator = node.Operator.Text;
    if (!comparisons.includes(operator) && !/^!?[a-z]/.test(operator)) return []; // arithmetic
    if (operator === "and" || operator === "or") return [];
    if (isText(node.Left)) return [{ left: node.Right, operator, right: node.Left }];
    return [{ left: node.Left, operator, right: node.Right }];
  }
  for (const kind of [Syntax.InExpression, Syntax.HasAnyExpression, Syntax.HasAllExpression]) {
    if (node instanceof kind) {
      return elements(node.Right.Expressions).map((right) => ({ left: node.Left, operator: node.Operator.Text, right }));
    }
  }
  return [];
}

// columnsOf returns the columns of tables, or keys in them, that an expression stands for: none if it is computed, and
// several if tables are combined.
function columnsOf(node) {
  if (node instanceof Syntax.ParenthesizedExpression) return columnsOf(node.Expression);
  if (node instanceof Syntax.FunctionCallExpression && /^(tostring|tolower|trim|parse_json)$/.test(node.Name.SimpleName)) {
    return columnsOf(elements(node.ArgumentList.Expressions)[0]);
  }
  if (node instanceof Syntax.PathExpression) {
    return columnsOf(node.Expression).map((c) => ({ ...c, key: node.Selector.SimpleName ?? literal(node.Selector) }));
  }
  if (node instanceof Syntax.ElementExpression) {
    return columnsOf(node.Expression).map((c) => ({ ...c, key: literal(node.Selector.Expression) }));
  }
  if (node instanceof Syntax.NameReference && node.ReferencedSymbol instanceof Symbols.ColumnSymbol) {
    return origins(node.ReferencedSymbol);
  }
  return [];
}

const literal = (node) => (isText(node) ? node.LiteralValue : undefined);

function origins(column) {
  const table = globals.GetTable(column);
  if (table) return [{ table: table.Name, column: column.Name }];
  const merged = list(column.OriginalColumns ?? []);
  if (merged.length > 0) return merged.flatMap(origins);
  return column.Source ? columnsOf(column.Source) : [];
}

// givesOneRow tells whether the query ends in a summarize without "by", which gives a row even for no rows.
function givesOneRow(syntax) {
  let node = elements(syntax.Statements).at(-1)?.Expression;
  while (node instanceof Syntax.PipeExpression) {
    if (node.Operator instanceof Syntax.SummarizeOperator) return !node.Operator.ByClause;
    if (!(node.Operator instanceof Syntax.ExtendOperator || node.Operator instanceof Syntax.ProjectOperator)) return false;
    node = node.Expression;
  }
  return false;
}

function position(text, offset) {
  const before = text.slice(0, offset).split("\n");
  return `line ${before.length}, column ${before.at(-1).length + 1}`;
}

process.stdout.write(JSON.stringify(JSON.parse(readFileSync(0, "utf8")).map(check)));

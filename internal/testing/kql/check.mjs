// Checks queries in the Kusto query language against the tables of Application Insights, with Microsoft's own parser.
//
// It reads a JSON array of queries, {"name", "text"}, from stdin and writes an array of what it found, in the same
// order, to stdout. The types are in kql.go, which runs it.

import { readFileSync } from "node:fs";
import { elements, globals, KustoCode, list, Syntax, Symbols } from "./parser.mjs";

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

// givesOneRow reports whether the query ends in a summarize without "by", which gives a row even for no rows.
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

// Evaluates queries over rows, for those operators and functions that the alerts use; any other one is an error. The
// parser is Microsoft's. kql.go runs it.
//
// It reads {"queries": [{"name", "text", "since"}], "now": milliseconds, "tables": {name: [row]}} from stdin, and writes an
// array of {"name", "rows"} to stdout. Times and durations are milliseconds.

import { readFileSync } from "node:fs";
import { elements, globals, KustoCode, list, Syntax, Symbols, tables } from "./parser.mjs";

const { now, tables: rows, queries } = JSON.parse(readFileSync(0, "utf8"));

let seen; // the rows after the query's "since"

function evaluate({ name, text, since = 0 }) {
  seen = (table) => (rows[table] ?? []).filter((row) => row.timestamp > since);
  const code = KustoCode.ParseAndAnalyze(text, globals);
  const wrong = list(code.GetDiagnostics()).filter((d) => d.Severity === "Error");
  if (wrong.length > 0) throw new Error(`${name}: ${wrong[0].Message}`);
  const lets = new Map();
  let result;
  for (const statement of elements(code.Syntax.Statements)) {
    if (statement instanceof Syntax.LetStatement) lets.set(statement.Name.SimpleName, value(statement.Expression, {}, lets));
    else result = value(statement.Expression, {}, lets);
  }
  return { name, rows: result };
}

const unknown = (node) => { throw new Error(`cannot evaluate ${node.constructor.$$name ?? node.Kind}: ${node.toString().trim()}`); };

// value returns the value of an expression for a row. A tabular one gives rows.
function value(node, row, lets) {
  const of = (part) => value(part, row, lets);
  if (node instanceof Syntax.PipeExpression) return pipe(node.Operator, of(node.Expression), lets);
  if (node instanceof Syntax.ParenthesizedExpression) return of(node.Expression);
  if (node instanceof Syntax.LiteralExpression) return literal(node);
  if (node instanceof Syntax.CompoundStringLiteralExpression) return node.LiteralValue;
  if (node instanceof Syntax.NameReference) {
    if (node.SimpleName in row) return row[node.SimpleName];
    if (lets.has(node.SimpleName)) return lets.get(node.SimpleName);
    if (node.SimpleName in tables) return seen(node.SimpleName);
    if (node.ReferencedSymbol instanceof Symbols.ColumnSymbol) return null;
    return unknown(node);
  }
  if (node instanceof Syntax.PathExpression) return of(node.Expression)?.[node.Selector.SimpleName] ?? null;
  if (node instanceof Syntax.ToScalarExpression) return Object.values(of(node.Expression)[0] ?? {})[0] ?? null;
  if (node instanceof Syntax.InExpression) {
    const found = elements(node.Right.Expressions).some((one) => of(one) === of(node.Left));
    return node.Operator.Text === "in" ? found : node.Operator.Text === "!in" ? !found : unknown(node);
  }
  if (node instanceof Syntax.BinaryExpression) return binary(node, of);
  if (node instanceof Syntax.FunctionCallExpression) {
    const does = functions[node.Name.SimpleName] ?? unknown(node);
    return does(...elements(node.ArgumentList.Expressions).map(of));
  }
  return unknown(node);
}

function literal(node) {
  const kind = node.ResultType.Name;
  if (kind === "timespan") {
    const [, n, unit] = node.toString().trim().match(/^(\d+)(ms|s|m|h|d)$/) ?? unknown(node);
    return n * { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 }[unit];
  }
  if (kind === "bool") return node.toString().trim() === "true";
  return ["long", "int", "real"].includes(kind) ? Number(node.toString()) : node.LiteralValue;
}

// same compares as Kusto does: the columns "success" hold texts, and are compared with true and false.
const same = (a, b) => (typeof a === "boolean" || typeof b === "boolean" ? String(a).toLowerCase() === String(b).toLowerCase() : a === b);

function binary(node, of) {
  const operator = node.Operator.Text;
  if (operator === "and") return of(node.Left) && of(node.Right);
  if (operator === "or") return of(node.Left) || of(node.Right);
  const [a, b] = [of(node.Left), of(node.Right)];
  switch (operator) {
    case "==": return same(a, b);
    case "!=": return !same(a, b);
    case "startswith": return String(a ?? "").toLowerCase().startsWith(b.toLowerCase());
  }
  if (a === null || b === null) return ["+", "-", "*", "/"].includes(operator) ? null : false;
  switch (operator) {
    case "<": return a < b;
    case "<=": return a <= b;
    case ">": return a > b;
    case ">=": return a >= b;
    case "+": return a + b;
    case "-": return a - b;
    case "*": return a * b;
    case "/": return ["int", "long"].includes(node.ResultType.Name) ? Math.trunc(a / b) : a / b;
  }
  return unknown(node);
}

const functions = {
  ago: (span) => now - span,
  coalesce: (...all) => all.find((one) => one !== null && one !== "") ?? null,
  iff: (is, then, otherwise) => (is ? then : otherwise),
  isnull: (one) => one === null,
  isnotempty: (one) => one !== null && one !== "",
  not: (one) => !one,
  toint: (one) => (one === null || one === "" || Number.isNaN(Number(one)) ? null : Math.trunc(Number(one))),
  tostring: (one) => (one === null ? "" : String(one)),
};

const numbers = (all) => all.filter((one) => one !== null);
const most = (all) => (all.length ? Math.max(...all) : null);
const least = (all) => (all.length ? Math.min(...all) : null);
const sum = (all) => all.reduce((a, b) => a + b, 0);

// aggregates take the rows of a group, a function that evaluates for a row, and the arguments.
const aggregates = {
  count: (group) => group.length,
  countif: (group, at, is) => group.filter((row) => at(is, row)).length,
  max: (group, at, of) => most(numbers(group.map((row) => at(of, row)))),
  maxif: (group, at, of, is) => most(numbers(group.filter((row) => at(is, row)).map((row) => at(of, row)))),
  min: (group, at, of) => least(numbers(group.map((row) => at(of, row)))),
  sum: (group, at, of) => sum(numbers(group.map((row) => at(of, row)))),
  sumif: (group, at, of, is) => sum(numbers(group.filter((row) => at(is, row)).map((row) => at(of, row)))),
  // The value at which the weights of those up to it reach that part of all.
  percentilew(group, at, of, weight, percent) {
    const all = group.map((row) => [at(of, row), at(weight, row)]).sort(([a], [b]) => a - b);
    let left = sum(all.map(([, w]) => w)) * at(percent, {}) / 100;
    for (const [one, w] of all) if ((left -= w) <= 0) return one;
    return null;
  },
};

const named = (node) => (node instanceof Syntax.SimpleNamedExpression ? [node.Name.SimpleName, node.Expression]
  : [node instanceof Syntax.NameReference ? node.SimpleName : unknown(node), node]);

function pipe(node, from, lets) {
  const at = (expression, row) => value(expression, row, lets);
  if (node instanceof Syntax.FilterOperator) return from.filter((row) => at(node.Condition, row));
  if (node instanceof Syntax.ExtendOperator) {
    return from.map((row) => elements(node.Expressions).map(named).reduce((made, [name, of]) => ({ ...made, [name]: at(of, made) }), row));
  }
  if (node instanceof Syntax.ProjectOperator) {
    return from.map((row) => Object.fromEntries(elements(node.Expressions).map(named).map(([name, of]) => [name, at(of, row)])));
  }
  if (node instanceof Syntax.SummarizeOperator) return summarize(node, from, at);
  if (node instanceof Syntax.JoinOperator) return join(node, from, at);
  return unknown(node);
}

function summarize(node, from, at) {
  const by = node.ByClause ? elements(node.ByClause.Expressions).map(named) : [];
  const groups = new Map(by.length ? [] : [["{}", { keys: {}, group: [] }]]); // without "by" there is one, of no rows too
  for (const row of from) {
    const keys = Object.fromEntries(by.map(([name, of]) => [name, at(of, row)]));
    const key = JSON.stringify(keys);
    if (!groups.has(key)) groups.set(key, { keys, group: [] });
    groups.get(key).group.push(row);
  }
  return [...groups.values()].map(({ keys, group }) => {
    const made = { ...keys };
    for (const one of elements(node.Aggregates)) {
      const call = one instanceof Syntax.SimpleNamedExpression ? one.Expression : one;
      const args = elements(call.ArgumentList.Expressions);
      if (call.Name.SimpleName === "arg_max") {
        const best = group.reduce((a, b) => (a === null || at(args[0], b) > at(args[0], a) ? b : a), null);
        for (const of of args) made[of.SimpleName] = best && at(of, best);
      } else {
        const does = aggregates[call.Name.SimpleName] ?? unknown(call);
        made[one instanceof Syntax.SimpleNamedExpression ? one.Name.SimpleName : `${call.Name.SimpleName}_`] = does(group, at, ...args);
      }
    }
    return made;
  });
}

function join(node, from, at) {
  const kind = list(node.Parameters).find((one) => one.Name.SimpleName === "kind")?.Expression.toString().trim();
  if (kind !== "inner") return unknown(node);
  const on = elements(node.ConditionClause.Expressions).map((one) => one.SimpleName);
  return from.flatMap((left) => at(node.Expression, {}).filter((right) => on.every((name) => left[name] === right[name])).map((right) => ({ ...right, ...left })));
}

process.stdout.write(JSON.stringify(queries.map(evaluate)));

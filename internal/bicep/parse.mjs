// Prints the syntax trees of the Bicep files that its arguments name, one line of JSON each:
//
//   {"path", "errors": [{"line", "column", "text"}], "root": {"type", "field", "line", "existing", "text", "children"}}
//
// A node has its named children, or else its text. The keyword `existing` has no name in the grammar.
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { Language, Parser } from 'web-tree-sitter'

await Parser.init()
const parser = new Parser()
const grammar = createRequire(import.meta.url).resolve('tree-sitter-bicep/tree-sitter-bicep.wasm')
parser.setLanguage(await Language.load(grammar))

function convert(node, field) {
  const converted = { type: node.type, field, line: node.startPosition.row + 1 }
  const children = []
  for (let i = 0; i < node.childCount; i++) {
    const child = node.child(i)
    if (child.isNamed) children.push(convert(child, node.fieldNameForChild(i) ?? undefined))
    else if (child.type === 'existing') converted.existing = true
  }
  if (children.length) converted.children = children
  else converted.text = node.text
  return converted
}

function errors(node, found = []) {
  if (node.isError || node.isMissing) {
    const text = node.isMissing ? `${node.type} is missing` : `not understood: ${node.text.split('\n')[0].slice(0, 60)}`
    found.push({ line: node.startPosition.row + 1, column: node.startPosition.column + 1, text })
  } else if (node.hasError) {
    for (const child of node.children) errors(child, found)
  }
  return found
}

for (const path of process.argv.slice(2)) {
  const root = parser.parse(readFileSync(path, 'utf8')).rootNode
  console.log(JSON.stringify({ path, errors: errors(root), root: convert(root) }))
}

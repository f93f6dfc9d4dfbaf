// Reads a PowerShell script from stdin and prints what is not PowerShell in it, a line of "line:column: text" for each
// such place. It prints nothing, and ends with 0, where there is none. It knows the syntax, and no command.
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { setFlagsFromString } from 'node:v8'
import { Language, Parser } from 'web-tree-sitter'

// The optimising compiler would spend ten seconds on a grammar that is used for a tenth of one.
setFlagsFromString('--liftoff-only')

const require = createRequire(import.meta.url)
await Parser.init()
const parser = new Parser()
parser.setLanguage(await Language.load(require.resolve('tree-sitter-powershell/tree-sitter-powershell.wasm')))

let errors = 0
function report(node) {
  if (node.isError || node.isMissing) {
    const { row, column } = node.startPosition
    console.log(`${row + 1}:${column + 1}: ${node.isMissing ? 'missing ' + node.type : node.text.slice(0, 80)}`)
    errors++
    return
  }
  if (node.hasError) node.children.forEach(report)
}
report(parser.parse(readFileSync(0, 'utf8')).rootNode)
process.exitCode = errors ? 1 : 0

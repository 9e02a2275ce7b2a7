/**
 * Writes the reference of the package, typescript-*.md, from the comments of its sources into a directory:
 *
 *     node scripts/reference.js DIRECTORY
 */

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import ts from "typescript";

const top = join(import.meta.dirname, "..");
const [directory] = process.argv.slice(2);
/** Longest line of a signature. */
const width = 100;
const maxPageBytes = 12_288;

/** Pages, each with the names of exports by the file of their entry point. */
const allPages = [
  {
    name: "typescript-session",
    title: "TypeScript: sessions",
    text: "Functions and methods of a session.",
    exports: [
      ["index", "connect restore ConnectOptions SessionOptions Session ForkOptions InjectOptions"],
      ["index", "UsageEvent UsedSkill UsedState ReinjectedSkills ReinjectedFragment"],
    ],
  },
  {
    name: "typescript-parts",
    title: "TypeScript: parts of a session",
    text: "Own tools, sources, stores, dispatchers and errors.",
    exports: [
      ["index", "Tools ToolOptions ToolFunction ToolContext"],
      ["index", "JsonSchema StandardSchema LocalSkills LocalPreset McpServer McpServerOptions Site SiteOptions Source PluginServers ServerValueRequest AuthorizationFunction AuthorizationRequest"],
      ["index", "Store FindExecutor Token"],
      ["index", "Dispatcher DispatcherOptions Manager Thread"],
      ["index", "CaprootError ConfigError Refused ProgramError SealedError StoreError DispatchError ToolError version"],
    ],
  },
  {
    name: "typescript-adapters",
    title: "TypeScript: executors and adapters",
    text: "Executors, agent frameworks, Codex and tests.",
    exports: [
      ["index", "Executor Credentials Fleet FleetTable"],
      ["index", "Codex CodexTool CodexFunction CodexCall CodexAnswer"],
      ["ai", "ai AiTools"],
      ["openai-agents", "openaiAgents"],
      ["claude", "claude claudeText"],
      ["testing", "serve Served"],
    ],
  },
  {
    name: "typescript-data",
    title: "TypeScript: data",
    text: "Results and plain data.",
    exports: [
      ["index", "Roots Choice ToolDefinition ToolResult ResultImage Skill Authority Change InstructionUpdate UpdateKind NoticeChanges"],
      ["index", "InjectedSkills"],
      ["index", "SkillFragment AmbiguousName MentionCandidate OmittedMention ExecutorState ExecutorStatus SavedChanges"],
      ["index", "ChangeState SourceState Plugin PluginChanges"],
      ["index", "ChangedPlugin ComponentChange PendingCall PendingPage UnneededAnswer SubmittedAnswer DispatchRecord Drained"],
      ["index", "FinishedTurn CallLines"],
    ],
  },
];

const entries = [...new Set(allPages.flatMap((page) => page.exports.map(([entry]) => entry)))];
const program = ts.createProgram(entries.map(pathOf), readOptions());
const checker = program.getTypeChecker();
const exported = new Map(entries.map((entry) => [entry, exportsOf(entry)]));
const shownNames = renamedExports();

checkCoverage();
mkdirSync(directory, { recursive: true });
for (const page of allPages) {
  const text = renderPage(page);
  const bytes = Buffer.byteLength(text);
  if (bytes > maxPageBytes) throw new Error(`${page.name}.md has ${bytes} bytes: divide the page`);
  writeFileSync(join(directory, `${page.name}.md`), text);
}

function pathOf(entry) {
  return join(top, `src/${entry}.ts`);
}

function readOptions() {
  const { config } = ts.readConfigFile(join(top, "tsconfig.json"), ts.sys.readFile);
  return ts.parseJsonConfigFileContent(config, ts.sys, top).options;
}

/** Returns the exports of a file by their names. */
function exportsOf(entry) {
  const file = program.getSourceFile(pathOf(entry));
  const module = file && checker.getSymbolAtLocation(file);
  if (!module) throw new Error(`${entry} has no exports`);
  return new Map(checker.getExportsOfModule(module).map((symbol) => [symbol.name, target(symbol)]));
}

function target(symbol) {
  return symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol;
}

/** Returns the names of exports by the names of their declarations, if the names differ. */
function renamedExports() {
  const found = new Map();
  for (const symbols of exported.values()) {
    for (const [name, symbol] of symbols) if (symbol.name !== name) found.set(symbol.name, name);
  }
  return found;
}

/** Checks that a page describes each export. */
function checkCoverage() {
  const described = new Set(allPages.flatMap((page) => page.exports.flatMap(([, names]) => names.split(" "))));
  for (const [entry, symbols] of exported) {
    const missing = [...symbols.keys()].filter((name) => !described.has(name));
    if (missing.length > 0) throw new Error(`no page describes ${missing.join(", ")} of ${entry}: add the names`);
  }
}

function renderPage(page) {
  const others = allPages.filter((other) => other !== page);
  const links = others.map(({ name, title }) => `[${title.replace("TypeScript: ", "")}](${name}.md)`);
  const parts = [
    `# ${page.title}`,
    [
      page.text,
      "The comments of the npm package are the source.",
      `See also ${links.join(", ")}.`,
    ].join("\n"),
  ];
  for (const [entry, names] of page.exports) {
    const prefix = entry === "index" ? "" : `caproot/${entry}: `;
    for (const name of names.split(" ")) {
      const symbol = exported.get(entry)?.get(name);
      if (!symbol) throw new Error(`${entry} has no export ${name}`);
      parts.push(`## ${prefix}${name}`, ...renderExport(name, symbol));
    }
  }
  return `${parts.filter(Boolean).join("\n\n")}\n`;
}

/** Returns the parts of an export. */
function renderExport(name, symbol) {
  const [declaration] = symbol.declarations ?? [];
  if (!declaration) throw new Error(`${name} has no declaration`);
  const text = requireText(name, docOf(symbol));
  if (ts.isFunctionDeclaration(declaration)) return [block(signaturesOf(name, symbol)), text];
  if (ts.isClassDeclaration(declaration)) return [text, ...renderClass(name, declaration)];
  if (ts.isInterfaceDeclaration(declaration)) return [text, ...renderInterface(name, declaration)];
  if (ts.isTypeAliasDeclaration(declaration)) {
    const parameters = declaration.typeParameters?.map((parameter) => parameter.getText()).join(", ");
    return [block([`type ${name}${parameters ? `<${parameters}>` : ""} = ${typeText(declaration.type)}`]), text];
  }
  return [block([`const ${name}: ${checker.typeToString(checker.getTypeOfSymbol(symbol))}`]), text];
}

function renderClass(name, declaration) {
  const parts = [];
  const base = declaration.heritageClauses?.[0]?.types[0]?.getText();
  if (base && base !== "Error") parts.push(`A \`${base}\`.`);
  const members = declaration.members.filter(isPublic);
  const constructor = members.find(ts.isConstructorDeclaration);
  if (constructor) parts.push(block([wrapSignature(`new ${name}`, parametersOf(constructor), "")]), commentOf(constructor));

  const fields = members.filter((member) => ts.isPropertyDeclaration(member) || ts.isGetAccessorDeclaration(member));
  parts.push(fields.filter((field) => field.name.getText() !== "name" || name === "McpServer").map(fieldLine).join("\n"));
  return [...parts, ...renderMethods(name, members)];
}

function renderInterface(name, declaration) {
  const bases = declaration.heritageClauses?.flatMap((clause) => clause.types.map((type) => `\`${type.getText()}\``));
  const fields = declaration.members.filter(ts.isPropertySignature).filter((field) => !field.name.getText().startsWith("["));
  return [
    bases ? `Also has the fields of ${bases.join(" and ")}.` : "",
    fields.map(fieldLine).join("\n"),
    ...renderMethods(name, declaration.members),
  ];
}

function renderMethods(name, members) {
  const methods = members.filter((member) => ts.isMethodDeclaration(member) || ts.isMethodSignature(member));
  return methods.flatMap((method) => {
    const own = method.name.getText();
    const isStatic = ts.isMethodDeclaration(method) && (ts.getCombinedModifierFlags(method) & ts.ModifierFlags.Static) !== 0;
    if (own.startsWith("[")) return [];
    const owner = isStatic ? name : name.charAt(0).toLowerCase() + name.slice(1);
    return [
      `### ${name}.${own}`,
      block([wrapSignature(`${owner}.${own}`, parametersOf(method), resultOf(method))]),
      requireText(`${name}.${own}`, commentOf(method)),
    ];
  });
}

/** Whether a member is for users: neither private nor marked as internal. */
function isPublic(member) {
  const isHidden = member.name !== undefined && (ts.isPrivateIdentifier(member.name) || member.name.getText().startsWith("["));
  const hasKey = (ts.getCombinedModifierFlags(member) & (ts.ModifierFlags.Private | ts.ModifierFlags.Override)) === 0;
  return !isHidden && hasKey && !ts.getJSDocTags(member).some((tag) => tag.tagName.text === "internal");
}

function signaturesOf(name, symbol) {
  const declared = (symbol.declarations ?? []).filter(ts.isFunctionDeclaration);
  // The last declaration of an overloaded function is its implementation.
  const shown = declared.length > 1 ? declared.slice(0, -1) : declared;
  return shown.map((declaration) => wrapSignature(name, parametersOf(declaration), resultOf(declaration)));
}

function parametersOf(declaration) {
  return declaration.parameters.map((parameter) => {
    const name = ts.isObjectBindingPattern(parameter.name) ? "options" : parameter.name.getText();
    const isOptional = parameter.questionToken !== undefined || parameter.initializer !== undefined;
    const type = parameter.type ? typeText(parameter.type) : checker.typeToString(checker.getTypeAtLocation(parameter));
    return `${parameter.dotDotDotToken ? "..." : ""}${name}${isOptional ? "?" : ""}: ${type}`;
  });
}

function resultOf(declaration) {
  const signature = checker.getSignatureFromDeclaration(declaration);
  if (!signature) return "";
  const text = declaration.type?.getText() ?? "";
  const isReadable = declaration.type !== undefined && !text.includes("Result<");
  return `: ${isReadable ? typeText(declaration.type) : rename(checker.typeToString(signature.getReturnType()))}`;
}

function fieldLine(field) {
  const isOptional = !ts.isGetAccessorDeclaration(field) && field.questionToken !== undefined;
  const type = field.type ? typeText(field.type) : checker.typeToString(checker.getTypeAtLocation(field));
  const text = commentOf(field).replaceAll(/\s+/g, " ");
  return `- \`${field.name.getText()}${isOptional ? "?" : ""}: ${type}\`${text && `: ${text}`}`;
}

/** Returns the text of a type in one line, without comments. */
function typeText(type) {
  const printer = ts.createPrinter({ removeComments: true });
  const text = printer.printNode(ts.EmitHint.Unspecified, type, type.getSourceFile());
  return rename(text.replaceAll(/\s+/g, " ").replaceAll("; }", " }").replaceAll(/"(\w+)":/g, "$1:"));
}

function rename(text) {
  return text.replaceAll(/\b[A-Z]\w+\b/g, (name) => shownNames.get(name) ?? name);
}

function wrapSignature(name, parameters, result) {
  const line = `${name}(${parameters.join(", ")})${result}`;
  return line.length <= width ? line : `${name}(\n${parameters.map((text) => `  ${text},\n`).join("")})${result}`;
}

function block(lines) {
  return `\`\`\`typescript\n${lines.join("\n")}\n\`\`\``;
}

/** Returns the comment of a symbol. Comments of the lines have links of Rust, which become names. */
function docOf(symbol) {
  const text = ts.displayPartsToString(symbol.getDocumentationComment(checker));
  return text.replaceAll(/\[`(?:\w+::)*(\w+)`\](?![(:])/g, "`$1`");
}

function requireText(name, text) {
  if (!text) throw new Error(`${name} has no comment`);
  return text;
}

function commentOf(node) {
  const symbol = checker.getSymbolAtLocation(node.name ?? node);
  if (symbol) return docOf(symbol);
  const [comment] = ts.getJSDocCommentsAndTags(node);
  return (comment && ts.getTextOfJSDocComment(comment.comment)) ?? "";
}


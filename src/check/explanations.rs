//! The words for each diagnostic code. A code without them does not compile. Those of what a plugin
//! declares are in `plugins`.

use super::explain::{CodeExample, CodeExplanation};
use crate::domain::DiagnosticCode;
use crate::domain::Severity::{Error, Note, Warning};

/// The explanation of a code.
#[must_use]
#[allow(clippy::too_many_lines)] // a table
pub fn explanation_of(code: DiagnosticCode) -> CodeExplanation {
    match code {
        DiagnosticCode::OutsideRoot => CodeExplanation {
            default_severity: Warning,
            summary: "a link that leads outside",
            cause: "A symbolic link leads to a place outside the directories that may be read, or \
                links may not be followed here at all. It is not followed, so what it leads to is \
                not listed. Whether anything is there is not said.",
            fix: "Replace the link by a copy, or move its target inside. A daemon can also be \
                allowed to read the target's directory: `caproot serve --allow DIR`.",
            help: "replace the link by a copy, or start the daemon with `--allow` for its target",
            example: CodeExample::Shell {
                before: "ln -s ../../shared/forms skills/forms",
                after: "rm skills/forms\ncp -r shared/forms skills/forms",
            },
        },
        DiagnosticCode::LimitReached => CodeExplanation {
            default_severity: Warning,
            summary: "the search ended early",
            cause: "The tree is deeper or larger than a search may go. What lies beyond the limit \
                that the message names was not searched, and skills there are not listed.",
            fix: "Move skills closer to the root, select a directory further down as the root, or \
                have the daemon's operator raise the limit.",
            help: "move skills closer to the root, or select a directory further down",
            example: CodeExample::Shell {
                before: "mkdir -p skills/1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17\n\
                         mv skills/pdf skills/1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17",
                after: "mv skills/1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17/pdf skills/pdf\n\
                        rm -r skills/1",
            },
        },
        DiagnosticCode::NotRegular => CodeExplanation {
            default_severity: Error,
            summary: "not a regular file",
            cause: "What is named like a SKILL.md, an agents/openai.yaml or a plugin.json is a \
                directory, fifo, socket or device. It was not opened.",
            fix: "Put a regular file in its place, or give it another name.",
            help: "put a regular file in its place",
            example: CodeExample::Shell {
                before: "mkdir -p skills/new/SKILL.md\ncp skills/pdf/SKILL.md skills/new/SKILL.md/",
                after: "mv skills/new/SKILL.md/SKILL.md skills/new/text\n\
                        rmdir skills/new/SKILL.md\nmv skills/new/text skills/new/SKILL.md",
            },
        },
        DiagnosticCode::Unreadable => CodeExplanation {
            default_severity: Error,
            summary: "cannot be read",
            cause: "A file or directory could not be opened or read: the user may not, it vanished \
                meanwhile, or the filesystem failed. What it holds is not listed.",
            fix: "Give the user that runs caproot permission to read the file, and to search the \
                directories above it. Mind that the daemon may run as another user than you.",
            help: "give read permission to the user that runs caproot",
            example: CodeExample::Shell {
                before: "chmod 000 skills/pdf/SKILL.md",
                after: "chmod 644 skills/pdf/SKILL.md",
            },
        },
        DiagnosticCode::DanglingLink => CodeExplanation {
            default_severity: Note,
            summary: "a link to nothing",
            cause: "A symbolic link leads to nothing, or its links go round in a circle. Where it \
                is a SKILL.md, a skill is left out.",
            fix: "Create the target, point the link elsewhere, or remove it.",
            help: "mend or remove the link",
            example: CodeExample::Shell {
                before: "ln -s forms-v1 skills/forms",
                after: "cp -r shared/forms skills/forms-v1",
            },
        },
        DiagnosticCode::Alias => CodeExplanation {
            default_severity: Note,
            summary: "another path to the same",
            cause: "Two paths lead to the same directory or SKILL.md. It is listed once, under the \
                path that was reached without a link, else the shorter one, which the message \
                names. Nothing is lost.",
            fix: "None is needed. Remove the link if nothing else uses it.",
            help: "nothing needs to be done",
            example: CodeExample::Shell {
                before: "ln -s pdf skills/pdf-again",
                after: "rm skills/pdf-again",
            },
        },
        DiagnosticCode::WrongCase => CodeExplanation {
            default_severity: Note,
            summary: "SKILL.md in another letter case",
            cause: "A file is named like SKILL.md but for its letter case. Only the exact name \
                makes a skill, so that a tree gives the same skills on every filesystem.",
            fix: "Rename the file to SKILL.md.",
            help: "rename the file to `SKILL.md`",
            example: CodeExample::Shell {
                before: "mv skills/pdf/SKILL.md skills/pdf/skill.md",
                after: "mv skills/pdf/skill.md skills/pdf/SKILL.md",
            },
        },
        DiagnosticCode::DirectoriesSkipped => CodeExplanation {
            default_severity: Note,
            summary: "directories that were not searched",
            cause: "Directories of version control, package managers and builds are not searched, \
                nor are a skill's own scripts, references and assets. The message counts them by \
                name.",
            fix: "None is needed, unless skills lie in them: move those out.",
            help: "move skills out of these directories, if there are any",
            example: CodeExample::Shell {
                before: "mkdir -p skills/node_modules\nmv skills/pdf skills/node_modules/pdf",
                after: "mv skills/node_modules/pdf skills/pdf\nrmdir skills/node_modules",
            },
        },
        DiagnosticCode::NoFrontmatter => CodeExplanation {
            default_severity: Error,
            summary: "no frontmatter",
            cause: "A SKILL.md must begin with YAML between two lines `---`. This one does not \
                begin with such a line, or never has the second. The skill is left out.",
            fix: "Put the name and the description between two lines `---` at the very top, with \
                nothing before the first, no empty line either.",
            help: "put the name and the description between two `---` lines at the very top",
            example: CodeExample::File {
                path: "skills/pdf/SKILL.md",
                before: "# PDF\n\nFills PDF forms.",
                after: "---\nname: pdf\ndescription: Fills PDF forms.\n---\n\n# PDF",
            },
        },
        DiagnosticCode::YamlSyntax => CodeExplanation {
            default_severity: Error,
            summary: "broken YAML",
            cause: "The YAML cannot be parsed, or is over a bound in size, nesting or aliases. A \
                skill with such frontmatter is left out; with such an agents/openai.yaml it is \
                used only when a person names it.",
            fix: "Correct it at the line and column that are shown, or just before. Mostly it is \
                a quote that is not closed, a tab, lines that are not indented alike, or a key \
                that comes twice.",
            help: "look for an open quote, a tab, uneven indentation, or a key that comes twice",
            example: CodeExample::File {
                path: "skills/pdf/SKILL.md",
                before: "---\nname: pdf\ndescription: \"Fills PDF forms.\n---",
                after: "---\nname: pdf\ndescription: \"Fills PDF forms.\"\n---",
            },
        },
        DiagnosticCode::YamlRepaired => CodeExplanation {
            default_severity: Warning,
            summary: "broken YAML that was guessed",
            cause: "The frontmatter is no YAML, and became some after values were quoted: a colon \
                and a space, or one of `[ { @ <` and the backtick at the start of a value, mean \
                something in YAML. The skill is listed; other programs may refuse it.",
            fix: "Quote the values that the message names, or write them behind `>-` on a line of \
                their own.",
            help: "put the value in quotes",
            example: CodeExample::File {
                path: "skills/pdf/SKILL.md",
                before: "---\nname: pdf\ndescription: Use when: a form must be filled.\n---",
                after: "---\nname: pdf\ndescription: \"Use when: a form must be filled.\"\n---",
            },
        },
        DiagnosticCode::MissingDescription => CodeExplanation {
            default_severity: Error,
            summary: "no description",
            cause: "The frontmatter has no description, or a blank one. A model chooses skills by \
                their description, so a skill without one is left out.",
            fix: "Say in a sentence or two what the skill does and when to use it.",
            help: "add `description: …` that says what the skill does and when to use it",
            example: CodeExample::File {
                path: "skills/pdf/SKILL.md",
                before: "---\nname: pdf\n---",
                after: "---\nname: pdf\ndescription: Fills PDF forms. Use it for any form.\n---",
            },
        },
        DiagnosticCode::NameInvalid => CodeExplanation {
            default_severity: Warning,
            summary: "a name that breaks the rules",
            cause: "The Agent Skills format asks for a name of lower-case letters, digits and \
                single hyphens that is also the directory's. Other names are a warning: the skill \
                is listed, and other programs may refuse it. A name over 64 characters, over 128 \
                together with its plugin's, or with control characters is an error: the skill is \
                left out.",
            fix: "Rename the skill, and its directory with it.",
            help: "use lower-case letters, digits and single hyphens, and call the directory so too",
            example: CodeExample::File {
                path: "skills/pdf-forms/SKILL.md",
                before: "---\nname: PDF_Forms\ndescription: Fills PDF forms.\n---",
                after: "---\nname: pdf-forms\ndescription: Fills PDF forms.\n---",
            },
        },
        DiagnosticCode::FieldTooLong => CodeExplanation {
            default_severity: Warning,
            summary: "a field over its bound",
            cause: "A field is longer than it may be: 1,024 characters for a description, 500 for \
                `compatibility`, and so on. The message names the bound, and whether the field was \
                cut, kept or left out.",
            fix: "Shorten the field. Details belong in the text below the frontmatter, which is \
                read when the skill is used.",
            help: "shorten it; details belong in the text of the SKILL.md",
            example: CodeExample::File {
                path: "skills/pdf/agents/openai.yaml",
                before: "interface:\n  display_name: Fill in, sign, flatten, merge and split all \
                         your PDF forms at once",
                after: "interface:\n  display_name: PDF forms",
            },
        },
        DiagnosticCode::FieldInvalid => CodeExplanation {
            default_severity: Warning,
            summary: "a field of the wrong kind",
            cause: "A field has a type or a value that it cannot have, such as a list where text \
                belongs. The message says what becomes of it: mostly that field alone is lost, or \
                read as text; without a usable description the skill is left out.",
            fix: "Write the field as the message asks. Quote text that looks like a number, a \
                date, true or false.",
            help: "write the field as the message asks",
            example: CodeExample::File {
                path: "skills/pdf/SKILL.md",
                before: "---\nname: pdf\ndescription: Fills PDF forms.\nlicense: [MIT]\n---",
                after: "---\nname: pdf\ndescription: Fills PDF forms.\nlicense: MIT\n---",
            },
        },
        DiagnosticCode::FieldUnknown => CodeExplanation {
            default_severity: Note,
            summary: "a field that nobody knows",
            cause: "The format does not define the field. It does no harm; mostly it is a slip, or \
                belongs to one product.",
            fix: "Correct its spelling, or move it below `metadata`, which is for fields of your \
                own.",
            help: "correct its spelling, or remove it; a SKILL.md's own fields go below `metadata`",
            example: CodeExample::File {
                path: "skills/pdf/SKILL.md",
                before: "---\nname: pdf\ndescription: Fills PDF forms.\nversion: \"2\"\n---",
                after: "---\nname: pdf\ndescription: Fills PDF forms.\nmetadata:\n  version: \"2\"\n---",
            },
        },
        DiagnosticCode::NotUtf8 => CodeExplanation {
            default_severity: Error,
            summary: "not UTF-8",
            cause: "Text that must be UTF-8 is not: the frontmatter, an agents/openai.yaml or the \
                name of a directory that stands in for a skill's.",
            fix: "Save the file as UTF-8, or rename the directory.",
            help: "save the file as UTF-8, or give the directory a name in UTF-8",
            example: CodeExample::Shell {
                before: "mkdir skills/menu\nprintf -- \
                         '---\\nname: menu\\ndescription: Caf\\351 menus.\\n---\\n' > skills/menu/SKILL.md",
                after: "iconv -f latin1 -t utf-8 skills/menu/SKILL.md > skills/menu/new\n\
                        mv skills/menu/new skills/menu/SKILL.md",
            },
        },
        DiagnosticCode::ManifestInvalid => CodeExplanation {
            default_severity: Error,
            summary: "a plugin manifest that cannot be used",
            cause: "A plugin.json is no JSON, no object, too big, or has a name that cannot be \
                used. Its skills are listed without the plugin's name, or with that of a plugin \
                further up.",
            fix: "Correct it at the line and column that are shown.",
            help: "correct the JSON; it needs a `name` of 1 to 64 plain characters",
            example: CodeExample::File {
                path: "skills/.codex-plugin/plugin.json",
                before: "{\"name\": \"pdf-tools\",}",
                after: "{\"name\": \"pdf-tools\"}",
            },
        },
        DiagnosticCode::HandleTooLong => CodeExplanation {
            default_severity: Error,
            summary: "a path that is too long",
            cause: "A skill is named on the wire by its path below the root, in which everything \
                but plain letters, digits and `-._~` takes three bytes for one. This would be over \
                2,048 bytes; the skill is left out.",
            fix: "Shorten the names of the directories, or have fewer of them.",
            help: "shorten the names of the directories above the skill",
            example: CodeExample::Shell {
                before: "long=$(printf '%080d' 0 | sed 's/0/\u{6280}/g')\n\
                         mkdir -p \"skills/$long/$long/$long\"\n\
                         mv skills/pdf \"skills/$long/$long/$long\"",
                after: "mv \"skills/$long/$long/$long/pdf\" skills/pdf\nrm -r \"skills/$long\"",
            },
        },
        DiagnosticCode::WatchDegraded => CodeExplanation {
            default_severity: Warning,
            summary: "changes come late",
            cause: "The daemon cannot watch all directories of the root: the limit of inotify \
                watches or instances is reached, the kernel refuses, or the filesystem tells no \
                events of what others change. It searches the root again every few seconds \
                instead. Nothing is lost, but changes come later.",
            fix: "Do as the message says. Where it is a limit, raise it; the daemon notices by \
                itself. Where it is the filesystem, keep the skills on a local one.",
            help: "do as the message says, such as raising fs.inotify.max_user_watches",
            example: CodeExample::Daemon {
                before: "sysctl fs.inotify.max_user_watches=100",
                after: "sysctl fs.inotify.max_user_watches=524288",
            },
        },
        DiagnosticCode::PluginFileInvalid => CodeExplanation {
            default_severity: Error,
            summary: "a plugin's file that cannot be used",
            cause: "A file in which a plugin declares MCP servers, apps, hooks or LSP servers, or the list \
                of a marketplace, is no JSON, no object, or over 256 KiB. JSON has no comments, and no key \
                twice. Nothing of the file is reported; a daemon that watched it goes on with what it last \
                said.",
            fix: "Correct it at the line and column that are shown.",
            help: "correct the JSON; it has no comments, no trailing commas and no key twice",
            example: CodeExample::File {
                path: "skills/.claude-plugin/marketplace.json",
                before: "{\"name\": \"tools\", \"plugins\": [],}",
                after: "{\"name\": \"tools\", \"plugins\": []}",
            },
        },
        DiagnosticCode::PathInvalid => CodeExplanation {
            default_severity: Warning,
            summary: "a path that leaves the plugin",
            cause: "What a plugin.json names by path must be `./` and a path inside the plugin: not \
                absolute, no `..`, and no link that leads out of it. A server's working directory must \
                be inside it too. The path is not followed.",
            fix: "Move what it names into the plugin, and begin the path with `./`.",
            help: "begin the path with `./`, and keep it inside the plugin",
            example: CodeExample::File {
                path: "skills/.codex-plugin/plugin.json",
                before: "{\"name\": \"pdf-tools\", \"skills\": \"pdf\"}",
                after: "{\"name\": \"pdf-tools\", \"skills\": \"./pdf\"}",
            },
        },
        DiagnosticCode::PathMissing => CodeExplanation {
            default_severity: Warning,
            summary: "a path to nothing",
            cause: "A plugin.json names a file or directory that is not there, or is not of the kind that \
                is needed. What it should declare is not reported.",
            fix: "Create it, correct the path, or remove it from the plugin.json.",
            help: "create what it names, or correct the path",
            example: CodeExample::File {
                path: "skills/.codex-plugin/plugin.json",
                before: "{\"name\": \"pdf-tools\", \"skills\": \"./skils\"}",
                after: "{\"name\": \"pdf-tools\", \"skills\": \"./pdf\"}",
            },
        },
        DiagnosticCode::ComponentInvalid => CodeExplanation {
            default_severity: Error,
            summary: "a component that cannot be used",
            cause: "Something that a plugin declares lacks what is needed to use it: an MCP server without \
                command or url, or with a transport that is not known; an app without id; a hook without \
                command; a name that is empty or too long. It is left out; the others stay.",
            fix: "Add what the message says is missing.",
            help: "add what is missing, or remove it",
            example: CodeExample::File {
                path: "skills/.codex-plugin/plugin.json",
                before: "{\"name\": \"pdf-tools\", \"mcpServers\": {\"pages\": {\"args\": [\"serve\"]}}}",
                after: "{\"name\": \"pdf-tools\", \"mcpServers\": {\"pages\": {\"command\": \"pages\"}}}",
            },
        },
        DiagnosticCode::SecretRedacted => CodeExplanation {
            default_severity: Warning,
            summary: "a secret in a declaration",
            cause: "A command, an argument, an address, a header or a variable holds what is likely to be \
                a secret, by the name before it or by its looks. It is reported without it, so that no \
                secret leaves the machine; whoever is to use it has to get it otherwise.",
            fix: "Keep the secret out of the file: name the variable of the environment that holds it.",
            help: "take it from the environment: `${NAME}`",
            example: CodeExample::File {
                path: "skills/.codex-plugin/plugin.json",
                before: "{\"name\": \"pdf-tools\", \"mcpServers\": {\n  \
                    \"pages\": {\"command\": \"pages\", \"args\": [\"--token=hunter2\"]}}}",
                after: "{\"name\": \"pdf-tools\", \"mcpServers\": {\n  \
                    \"pages\": {\"command\": \"pages\", \"args\": [\"--token=${PAGES_TOKEN}\"]}}}",
            },
        },
        DiagnosticCode::HiddenText => CodeExplanation {
            default_severity: Warning,
            summary: "text that a reader does not see",
            cause: "The file holds characters without a glyph: bidirectional controls, zero-width \
                characters, tags or other characters that editors and reviews do not show. A model \
                reads them, so that they can tell it something that no person has seen. Joiners and \
                variation selectors that a script or an emoji needs are not reported. The file is \
                served unchanged; names and descriptions show the characters as `\\u{…}`.",
            fix: "Remove the hidden characters, from the line and column that are shown on. Most \
                come with text that was copied from a web page or a chat. If you do not know their \
                origin, do not trust the skill.",
            help: "remove the hidden characters, or do not trust the skill",
            example: CodeExample::Shell {
                before: "printf 'Fill in\\342\\200\\213 the form.\\n' >> skills/pdf/SKILL.md",
                after: "sed -i 's/\\xe2\\x80\\x8b//g' skills/pdf/SKILL.md",
            },
        },
    }
}

//! Texts of each diagnostic code. A code without a text does not compile.

use super::explain::{CodeExample, CodeExplanation};
use crate::model::DiagnosticCode;
use crate::model::Severity::{Error, Note, Warning};

/// Returns the explanation of a code.
#[must_use]
#[allow(clippy::too_many_lines)] // a table
pub fn explanation_of(code: DiagnosticCode) -> CodeExplanation {
    match code {
        DiagnosticCode::OutsideRoot => CodeExplanation {
            default_severity: Warning,
            summary: "a link out of the allowed directories",
            cause: "A symbolic link leads out of the directories that may be read, or links are \
                not followed here. Its target is not listed. The daemon does not report whether \
                the target exists.",
            fix: "Replace the link by a copy, or move its target inside. To allow the target's \
                directory, start the daemon with `caproot serve --allow DIR`.",
            help: "replace the link by a copy, or start the daemon with `--allow` for its target",
            example: CodeExample::Shell {
                before: "ln -s ../shared/forms skills/forms",
                after: "rm skills/forms\ncp -r shared/forms skills/forms",
            },
        },

        DiagnosticCode::LimitReached => CodeExplanation {
            default_severity: Warning,
            summary: "the scan ended at a limit",
            cause: "The tree is deeper or larger than the limit in the message. The rest of the \
                tree was not scanned, and its skills are not listed. If the message is about one \
                file, the file costs too much work to parse, and only this file is ignored.",
            fix: "Move skills closer to the root, select a directory further down as the root, or \
                raise the limit in the daemon's configuration. Simplify a file that costs too much.",
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
            cause: "A SKILL.md, an agents/openai.yaml or a plugin.json is a directory, fifo, \
                socket or device. It was not opened.",
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
            cause: "A file or directory could not be opened or read: permission is denied, the \
                file was deleted meanwhile, or the filesystem failed. Its content is not listed.",
            fix: "Give the user that runs caproot permission to read the file and to search the \
                directories above it. The daemon may run as another user than you.",
            help: "give read permission to the user that runs caproot",
            example: CodeExample::Shell {
                before: "chmod 000 skills/pdf/SKILL.md",
                after: "chmod 644 skills/pdf/SKILL.md",
            },
        },

        DiagnosticCode::DanglingLink => CodeExplanation {
            default_severity: Note,
            summary: "a link to nothing",
            cause: "The target of a symbolic link does not exist, or the links form a loop. If the \
                link is a SKILL.md, the skill is omitted.",
            fix: "Create the target, change the target of the link, or remove the link.",
            help: "fix or remove the link",
            example: CodeExample::Shell {
                before: "ln -s forms-v1 skills/forms",
                after: "cp -r shared/forms skills/forms-v1",
            },
        },

        DiagnosticCode::Alias => CodeExplanation {
            default_severity: Note,
            summary: "a second path to the same file",
            cause: "Two paths lead to the same directory or SKILL.md. It is listed once, under the \
                path without a link, else under a link with the name of the skill, or under the \
                shorter path. The message names the path. Nothing is lost.",
            fix: "No fix is needed. Remove the link if nothing else uses it.",
            help: "no fix is needed",
            example: CodeExample::Shell {
                before: "ln -s pdf skills/pdf-again",
                after: "rm skills/pdf-again",
            },
        },

        DiagnosticCode::WrongCase => CodeExplanation {
            default_severity: Warning,
            summary: "SKILL.md in another letter case",
            cause: "A file name differs from SKILL.md only in its letter case. Only the exact name \
                makes a skill, so that a tree has the same skills on every filesystem.",
            fix: "Rename the file to SKILL.md. `caproot check --fix` renames a file that has \
                valid frontmatter.",
            help: "rename the file to `SKILL.md`",
            example: CodeExample::Shell {
                before: "mv skills/pdf/SKILL.md skills/pdf/skill.md",
                after: "mv skills/pdf/skill.md skills/pdf/SKILL.md",
            },
        },

        DiagnosticCode::DirectoriesSkipped => CodeExplanation {
            default_severity: Note,
            summary: "directories that were skipped",
            cause: "Directories of version control, package managers and builds are skipped, and \
                so are a skill's own scripts, references and assets. The message counts the \
                skipped directories by name. A nested Git worktree is skipped, too, if its repository \
                is below the root.",
            fix: "No fix is needed, unless there are skills in these directories: move those \
                skills.",
            help: "move skills out of these directories, if there are any",
            example: CodeExample::Shell {
                before: "mkdir -p skills/node_modules\nmv skills/pdf skills/node_modules/pdf",
                after: "mv skills/node_modules/pdf skills/pdf\nrmdir skills/node_modules",
            },
        },

        DiagnosticCode::NoFrontmatter => CodeExplanation {
            default_severity: Error,
            summary: "no frontmatter",
            cause: "A SKILL.md must begin with YAML between two lines `---`. The first or the \
                second of these lines is missing. The skill is omitted.",
            fix: "Put the name and the description between two lines `---` at the very top. Leave \
                no empty line before the first `---`.",
            help: "put the name and the description between two `---` lines at the very top",
            example: CodeExample::File {
                path: "skills/pdf/SKILL.md",
                before: "# PDF\n\nFills PDF forms.",
                after: "---\nname: pdf\ndescription: Fills PDF forms.\n---\n\n# PDF",
            },
        },

        DiagnosticCode::YamlSyntax => CodeExplanation {
            default_severity: Error,
            summary: "invalid YAML",
            cause: "The YAML cannot be parsed, or exceeds a limit of size, nesting or aliases. A \
                skill with such frontmatter is omitted. A skill with such an agents/openai.yaml is \
                used only if a person names it.",
            fix: "Correct the YAML at the line and column in the message, or just before. Common \
                causes are a missing closing quote, a tab, uneven indentation and a duplicate key.",
            help: "look for a missing closing quote, a tab, uneven indentation or a duplicate key",
            example: CodeExample::File {
                path: "skills/pdf/SKILL.md",
                before: "---\nname: pdf\ndescription: \"Fills PDF forms.\n---",
                after: "---\nname: pdf\ndescription: \"Fills PDF forms.\"\n---",
            },
        },

        DiagnosticCode::YamlRepaired => CodeExplanation {
            default_severity: Warning,
            summary: "invalid YAML that was repaired",
            cause: "The frontmatter was not valid YAML until caproot quoted some values, or left out \
                values of fields that decide nothing. A colon and a space, quotes inside quotes, or a \
                sign such as `[`, `{`, `@`, `*`, `%`, `|` or the backtick at the start of a value have a \
                meaning in YAML. The skill is listed, but other programs may reject it.",
            fix: "Quote the values that the message names, or write them after `>-` on their own \
                line. `caproot check --fix` puts the values in quotes.",
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
            cause: "The frontmatter has no description, or an empty description. A model chooses \
                skills by their description, so a skill without a description is omitted.",
            fix: "Describe in a sentence or two the purpose of the skill and when to use it.",
            help: "add `description: …` with the purpose of the skill and when to use it",
            example: CodeExample::File {
                path: "skills/pdf/SKILL.md",
                before: "---\nname: pdf\n---",
                after: "---\nname: pdf\ndescription: Fills PDF forms. Use it for any form.\n---",
            },
        },

        DiagnosticCode::NameInvalid => CodeExplanation {
            default_severity: Warning,
            summary: "an invalid name",
            cause: "The Agent Skills format requires a name of lower-case letters, digits and \
                single hyphens that equals the name of the directory. For other names there is a \
                warning: the skill is listed, but other programs may reject it. A name over 64 \
                characters, over 128 characters with its plugin's name, or with control characters \
                is an error: the skill is omitted.",
            fix: "Rename the skill and its directory.",
            help: "use lower-case letters, digits and single hyphens, and give the directory the \
                same name",
            example: CodeExample::File {
                path: "skills/pdf-forms/SKILL.md",
                before: "---\nname: PDF_Forms\ndescription: Fills PDF forms.\n---",
                after: "---\nname: pdf-forms\ndescription: Fills PDF forms.\n---",
            },
        },

        DiagnosticCode::FieldTooLong => CodeExplanation {
            default_severity: Warning,
            summary: "a field over its size limit",
            cause: "A field exceeds its limit, such as 1,024 characters for a description or 500 \
                for `compatibility`. The message names the limit, and says whether the field was \
                truncated, kept or omitted.",
            fix: "Shorten the field. Move details into the text below the frontmatter, which a \
                model reads when it uses the skill.",
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
            summary: "a field of the wrong type",
            cause: "A field has an invalid type or value, such as a list instead of text. Or YAML \
                reads a part of a name or description as something else: as a comment after ` #`, \
                as a tag or anchor after `!` or `&`, or as a key on a line that is not indented. The \
                message gives the effect. In most cases only this field or part is lost, or read as \
                text. Without a usable description the skill is omitted.",
            fix: "Write the field as the message says. Quote text that looks like a number, a \
                date, true or false. `caproot check --fix` quotes and indents names and descriptions.",
            help: "write the field as the message says",
            example: CodeExample::File {
                path: "skills/pdf/SKILL.md",
                before: "---\nname: pdf\ndescription: Fills PDF forms.\nlicense: [MIT]\n---",
                after: "---\nname: pdf\ndescription: Fills PDF forms.\nlicense: MIT\n---",
            },
        },

        DiagnosticCode::FieldUnknown => CodeExplanation {
            default_severity: Note,
            summary: "an unknown field",
            cause: "The format does not define the field. The field does no harm. In most cases it \
                is a spelling mistake, or a field of one product.",
            fix: "Correct the spelling, or move the field below `metadata`, which is for your own \
                fields.",
            help: "move your own fields below `metadata`",
            example: CodeExample::File {
                path: "skills/pdf/SKILL.md",
                before: "---\nname: pdf\ndescription: Fills PDF forms.\nversion: \"2\"\n---",
                after: "---\nname: pdf\ndescription: Fills PDF forms.\nmetadata:\n  version: \"2\"\n---",
            },
        },

        DiagnosticCode::NotUtf8 => CodeExplanation {
            default_severity: Error,
            summary: "not UTF-8",
            cause: "Text is not UTF-8, for example in UTF-16 or Latin-1: the frontmatter, an agents/openai.yaml, a \
                JSON file of a plugin, or the name of a directory that is used as the name of its skill.",
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
            summary: "an invalid plugin manifest",
            cause: "A plugin.json is not JSON, is not an object, is too large, or has an invalid \
                name. Its skills are listed without the plugin's name, or with the name of a \
                plugin further up.",
            fix: "Correct the JSON at the line and column in the message.",
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
            cause: "The handle of a skill is its path below the root. All bytes except plain \
                letters, digits and `-._~` take three bytes in a handle. This handle exceeds 2,048 \
                bytes, so the skill is omitted.",
            fix: "Shorten the names of the directories, or use fewer directories.",
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
            summary: "changes are found late",
            cause: "The daemon cannot watch all directories of the root: the limit of inotify \
                watches or instances is reached, the kernel rejects the watch, or the filesystem \
                reports no events for changes by other machines. The daemon rescans the root every \
                few seconds instead. Nothing is lost, but changes are found later.",
            fix: "Follow the message. If a limit is reached, raise it: the daemon notices the new \
                limit by itself. If the filesystem reports no events, keep the skills on a local \
                filesystem.",
            help: "follow the message, for example raise fs.inotify.max_user_watches",
            example: CodeExample::Daemon {
                before: "sysctl fs.inotify.max_user_watches=100",
                after: "sysctl fs.inotify.max_user_watches=524288",
            },
        },

        DiagnosticCode::PluginFileInvalid => CodeExplanation {
            default_severity: Error,
            summary: "an invalid file of a plugin",
            cause: "A file that declares MCP servers, apps, hooks or LSP servers, or the list of a \
                marketplace, is not JSON, is not an object, or exceeds 256 KiB. JSON has no \
                comments and no duplicate keys. Nothing of the file is reported. A daemon that \
                read a valid version before continues to report that version.",
            fix: "Correct the JSON at the line and column in the message.",
            help: "correct the JSON; it has no comments, no trailing commas and no duplicate keys",
            example: CodeExample::File {
                path: "skills/.claude-plugin/marketplace.json",
                before: "{\"name\": \"tools\", \"plugins\": [],}",
                after: "{\"name\": \"tools\", \"plugins\": []}",
            },
        },

        DiagnosticCode::PathInvalid => CodeExplanation {
            default_severity: Warning,
            summary: "a path out of the plugin",
            cause: "A path in a plugin.json must be `./` and a path inside the plugin: not \
                absolute, without `..`, and without a link that leads out of the plugin. The \
                working directory of a server must be inside the plugin, too. The path is not \
                followed.",
            fix: "Move the file or directory into the plugin, and begin the path with `./`.",
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
            cause: "A plugin.json names a file or directory that does not exist or has the wrong \
                type. Its declarations are not reported.",
            fix: "Create the file or directory, correct the path, or remove the path from the \
                plugin.json.",
            help: "create the file or directory, or correct the path",
            example: CodeExample::File {
                path: "skills/.codex-plugin/plugin.json",
                before: "{\"name\": \"pdf-tools\", \"skills\": \"./skils\"}",
                after: "{\"name\": \"pdf-tools\", \"skills\": \"./pdf\"}",
            },
        },

        DiagnosticCode::ComponentInvalid => CodeExplanation {
            default_severity: Error,
            summary: "an invalid component",
            cause: "A component of a plugin is incomplete: an MCP server without command or url, \
                or with an unknown transport; an app without id; a hook or an LSP server without \
                command; a name that is empty or too long; or a declaration over 64 KiB. The \
                component is omitted, and the others are kept.",
            fix: "Add the missing part that the message names.",
            help: "add the missing part, or remove the component",
            example: CodeExample::File {
                path: "skills/.codex-plugin/plugin.json",
                before: "{\"name\": \"pdf-tools\", \"mcpServers\": {\"pages\": {\"args\": [\"serve\"]}}}",
                after: "{\"name\": \"pdf-tools\", \"mcpServers\": {\"pages\": {\"command\": \"pages\"}}}",
            },
        },

        DiagnosticCode::SecretRedacted => CodeExplanation {
            default_severity: Warning,
            summary: "a possible secret in a declaration",
            cause: "A command, an argument, an address, a header or a variable contains a part \
                without a harmless form, or a word behind the name of a secret. The part is \
                redacted, so that no secret leaves the machine, and the message names its key. The \
                user of the component must get the value in another way.",
            fix: "Remove the value from the file, and name the environment variable that holds \
                the value.",
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
            summary: "hidden characters",
            cause: "The file has characters without a glyph: bidirectional controls, zero-width \
                characters, tags or other characters that editors and reviews do not show. A model \
                reads these characters, so they can give the model instructions that no person has \
                seen. Joiners that a script or an emoji needs are not reported, and neither are \
                variation selectors after an emoji, an ideograph or a Mongolian letter. The file is served unchanged; names and descriptions show the characters \
                as `\\u{…}`.",
            fix: "Remove the hidden characters, starting at the line and column in the message. \
                Most hidden characters come from text that was copied from a web page or a chat. \
                If you do not know their origin, do not trust the skill.",
            help: "remove the hidden characters, or do not trust the skill",
            example: CodeExample::Shell {
                before: "printf 'Fill in\\342\\200\\213 the form.\\n' >> skills/pdf/SKILL.md",
                after: "sed -i 's/\\xe2\\x80\\x8b//g' skills/pdf/SKILL.md",
            },
        },

        DiagnosticCode::ReferenceMissing => CodeExplanation {
            default_severity: Warning,
            summary: "a path in the text to nothing",
            cause: "The text of a SKILL.md has a Markdown link or image whose target does not \
                exist, or is written in another letter case or with backslashes. A path in \
                backticks such as `scripts/fill.py` is a note, if its first directory belongs to \
                the skill. A relative path starts at the directory of the SKILL.md. A model that \
                follows the path gets an error. Code blocks, addresses such as `https:`, absolute \
                paths and paths out of the checked directory are not examined. Only `caproot check` \
                reports this code.",
            fix: "Correct the path, or add the file.",
            help: "correct the path, or add the file",
            example: CodeExample::File {
                path: "skills/pdf/SKILL.md",
                before: "---\nname: pdf\ndescription: Fills PDF forms. Use when a form is blank.\n\
                    ---\n\nRead [the steps](steps.md).",
                after: "---\nname: pdf\ndescription: Fills PDF forms. Use when a form is blank.\n\
                    ---\n\n1. Open the form.",
            },
        },

        DiagnosticCode::ScriptNotRunnable => CodeExplanation {
            default_severity: Note,
            summary: "a script that does not run by its path",
            cause: "A file in `scripts` has the extension of a shell, Python, Ruby or Perl script, \
                and has no `#!` line as its first line; or it has the line but no execute \
                permission. It runs only if the command names an interpreter, such as `python3 \
                scripts/fill.py`. Only `caproot check` reports this code.",
            fix: "Add a first line such as `#!/usr/bin/env python3`, and run `chmod +x`. `caproot \
                check --fix` adds the execute permission to files with a `#!` line. No fix is \
                needed if SKILL.md names the interpreter, or if other scripts import the file.",
            help: "add the missing part, or name the interpreter in the SKILL.md",
            example: CodeExample::Shell {
                before: "mkdir skills/pdf/scripts\n\
                    printf '#!/bin/sh\\necho fill\\n' > skills/pdf/scripts/fill.sh",
                after: "chmod +x skills/pdf/scripts/fill.sh",
            },
        },

        DiagnosticCode::SkillTooLong => CodeExplanation {
            default_severity: Note,
            summary: "a long SKILL.md",
            cause: "The text below the frontmatter has over 500 lines or over 5,000 words. A model \
                reads the whole text each time that it uses the skill, which leaves less room for \
                the task. Only `caproot check` reports this code.",
            fix: "Keep the steps in SKILL.md, move details into files in `references`, and link to \
                them.",
            help: "move details into files in `references`",
            example: CodeExample::Shell {
                before: "seq 501 >> skills/pdf/SKILL.md",
                after: "mkdir skills/pdf/references\n\
                    sed -n '5,$p' skills/pdf/SKILL.md > skills/pdf/references/numbers.md\n\
                    sed -i '5,$d' skills/pdf/SKILL.md",
            },
        },

        DiagnosticCode::UseNotDescribed => CodeExplanation {
            default_severity: Note,
            summary: "a description without a use",
            cause: "The description has none of the English words that say when to use the skill, \
                such as `when`, `use` or `trigger`. A model decides by the description whether it \
                reads the skill. Descriptions in other scripts than Latin are not examined. Only \
                `caproot check` reports this code.",
            fix: "Add a sentence that begins with `Use when`.",
            help: "add a sentence `Use when …`",
            example: CodeExample::File {
                path: "skills/pdf/SKILL.md",
                before: "---\nname: pdf\ndescription: Fills PDF forms.\n---",
                after: "---\nname: pdf\n\
                    description: Fills PDF forms. Use when a form must be filled.\n---",
            },
        },

        DiagnosticCode::SkillChanged => CodeExplanation {
            default_severity: Warning,
            summary: "files that differ from the lock",
            cause: "The lock of approved skills has the name of the skill with other files: a file \
                was changed, added or removed after the approval. The message names the first three. \
                With the mode `hide`, the daemon omits the skill.",
            fix: "Read the files that `caproot lock --check` names, and approve the skill with \
                `caproot lock --update`.",
            help: "review the files, then approve the skill with `caproot lock --update`",
            example: CodeExample::Daemon {
                before: "echo more >> skills/pdf/SKILL.md",
                after: "caproot lock skills --update pdf --out caproot.lock",
            },
        },

        DiagnosticCode::SkillsNotApproved => CodeExplanation {
            default_severity: Warning,
            summary: "skills that the lock does not have",
            cause: "The lock of approved skills does not have the names of these skills. One \
                diagnostic has the number for the whole root. With the mode `hide`, the daemon omits \
                these skills and all plugins.",
            fix: "Read the new skills that `caproot lock --check` names, and approve them with \
                `caproot lock --add`.",
            help: "review the skills, then approve them with `caproot lock --add`",
            example: CodeExample::Daemon {
                before: "cp -r pdf skills/pdf",
                after: "caproot lock skills --add pdf --out caproot.lock",
            },
        },

        DiagnosticCode::SkillNotOffered => CodeExplanation {
            default_severity: Note,
            summary: "a skill that models are not offered",
            cause: "The manifest of the plugin has a list `skills` that does not cover the skill, or the \
                skill or its plugin is switched off by default. A person may name the skill, and a \
                session may switch on a skill that is switched off.",
            fix: "Add the directory of the skill to the list, or remove the key that switches the skill \
                off. If models are not to choose the skill, ignore the note.",
            help: "add the skill's directory to `skills` of the manifest, or remove the key that switches \
                the skill off",
            example: CodeExample::File {
                path: "skills/.claude-plugin/plugin.json",
                before: "{\"name\": \"desk\", \"defaultEnabled\": false}",
                after: "{\"name\": \"desk\"}",
            },
        },

        DiagnosticCode::UnusualContent => CodeExplanation {
            default_severity: Note,
            summary: "content that a skill rarely has",
            cause: "The directory of the skill looks like a whole repository, holds keys, passwords \
                or credentials, or the text has the marks of a merge conflict. All files of the \
                directory are files of the skill: models can list and read them, and `caproot pull` \
                copies them. The message has their number and size. Files with keys or passwords, \
                such as `id_rsa` or `.npmrc`, are never served. Only `caproot check` reports this \
                code.",
            fix: "Move SKILL.md and the files that it needs into a directory of their own. Remove keys \
                and credentials. Resolve the conflict.",
            help: "move the skill into a directory of its own, and remove keys and credentials",
            example: CodeExample::Shell {
                before: "printf '{}' > skills/pdf/package.json",
                after: "rm skills/pdf/package.json",
            },
        },
    }
}

/// Returns the cases in which a code has another severity than the usual one, as the rest of a
/// sentence.
pub(super) fn severity_exceptions(code: DiagnosticCode) -> Option<&'static str> {
    const MAIN_FILES: &str = "`ERROR` if the link is a SKILL.md, a sidecar or a manifest";
    match code {
        DiagnosticCode::OutsideRoot | DiagnosticCode::DanglingLink => Some(MAIN_FILES),
        DiagnosticCode::Unreadable => Some("`WARNING` for a link"),
        DiagnosticCode::ReferenceMissing => Some("`NOTE` for a path in backticks"),
        DiagnosticCode::NoFrontmatter => {
            Some("`NOTE` for a Markdown file among the agents or output styles of a plugin")
        }
        DiagnosticCode::FieldTooLong => Some("`ERROR` for a whole agents/openai.yaml"),
        DiagnosticCode::FieldInvalid => {
            Some("`NOTE` if the value is converted, and `ERROR` for a description that is no text")
        }
        DiagnosticCode::UseNotDescribed => Some("`WARNING` for the text of `caproot new`"),
        DiagnosticCode::NotUtf8 => Some("`WARNING` for the name of a directory"),
        DiagnosticCode::SkillChanged | DiagnosticCode::SkillsNotApproved => {
            Some("`ERROR` with the mode `hide`")
        }
        _ => None,
    }
}

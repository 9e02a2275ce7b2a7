//! Invalid files named `f`, and the error of each.

/// Text of a file, and a part of its only error.
pub const CASES: &[(&str, &str)] = &[
    ("lisen: []", "f:1:1: lisen: unknown key; did you mean `listen`?"),
    ("Environment-IDs: [a]", "Environment-IDs: unknown key; did you mean `environment_ids`?"),
    ("colour: red", "f:1:1: colour: unknown key; the keys are environment_ids, listen,"),
    ("\nlimits:\n  max_dept: 3", "f:3:3: limits.max_dept: unknown key; did you mean `max_depth`?"),
    (
        "limits: {max_depth: 0}",
        "f:1:21: limits.max_depth: invalid value 0: expected a whole number from 1 to 1000",
    ),
    (
        "limits: {max_depth: 1001}",
        "limits.max_depth: invalid value 1001: expected a whole number from 1 to 1000",
    ),
    ("limits: {max_depth: -1}", "limits.max_depth: invalid value -1: expected a whole number"),
    ("limits: {max_depth: 1.5}", "limits.max_depth: invalid value 1.5: expected a whole number"),
    ("limits: {max_depth: '3'}", "limits.max_depth: invalid value \"3\": expected a whole number"),
    ("limits: {max_depth: 99999999999999999999}", "expected a whole number"),
    (
        "limits: {max_depth: 3MiB}",
        "limits.max_depth: invalid value \"3MiB\": expected a whole number",
    ),
    (
        "limits: {max_file_bytes: 17GiB}",
        "limits.max_file_bytes: invalid value \"17GiB\": expected a size from 1KiB to 16GiB",
    ),
    (
        "limits: {max_file_bytes: 1}",
        "limits.max_file_bytes: invalid value 1: expected a size from 1KiB",
    ),
    (
        "limits: {max_file_bytes: big}",
        "limits.max_file_bytes: invalid value \"big\": expected a size",
    ),
    (
        "limits: {max_file_bytes: [1]}",
        "limits.max_file_bytes: expected a size from 1KiB to 16GiB, such as 256MiB, found a list",
    ),
    (
        "limits: {max_cached_roots: 10}",
        "max_cached_roots, 10, must not be less than max_roots, 256",
    ),
    (
        "limits: {max_roots: 2000}",
        "f:1:21: limits.max_roots: invalid value 2000: max_cached_roots, 1024, must not be less than",
    ),
    ("limits: []", "f:1:9: limits: expected a mapping, found a list; the keys are max_roots,"),
    ("limits:", "f:1:1: limits: has no value; give a value, or remove the key"),
    (
        "sandbox: {landlock: true}",
        "f:1:21: sandbox.landlock: invalid value true: expected text; put the value in quotes",
    ),
    (
        "sandbox: {landlock: on}",
        "f:1:21: sandbox.landlock: invalid value \"on\": expected best-effort, required or off",
    ),
    (
        "sandbox: off",
        "f:1:10: sandbox: invalid value \"off\": expected a mapping; the keys are landlock",
    ),
    ("log: {filter: inof}", "f:1:15: log.filter: invalid value \"inof\": invalid log filter:"),
    ("metrics: {}", "f:1:10: metrics.listen: required key is missing"),
    (
        "metrics: {listen: 9464}",
        "f:1:19: metrics.listen: invalid value 9464: expected text; put the value in quotes",
    ),
    (
        "insecure_tcp: true\nmetrics: {listen: 'tcp:0.0.0.0:1'}",
        "f:2:19: metrics.listen: invalid value \"tcp:0.0.0.0:1\": other machines could connect without TLS; use",
    ),
    (
        "metrics: {listen: 'tcp:0.0.0.0:1'}",
        "f:1:19: metrics.listen: invalid value \"tcp:0.0.0.0:1\": other machines could connect",
    ),
    ("traces: {ratio: 1}", "f:1:9: traces.otlp: required key is missing"),
    (
        "traces: {otlp: 'https://a:1'}",
        "f:1:16: traces.otlp: invalid value \"https://a:1\": expected http://HOST:PORT",
    ),
    (
        "traces: {otlp: 'http://a'}",
        "f:1:16: traces.otlp: invalid value \"http://a\": expected http://HOST:PORT",
    ),
    (
        "traces: {otlp: 'http://a:1', ratio: 1.5}",
        "f:1:37: traces.ratio: invalid value 1.5: expected a number from 0 to 1, such as 0.1",
    ),
    (
        "log: {format: xml}",
        "f:1:15: log.format: invalid value \"xml\": expected text, json or journald",
    ),
    (
        "environment_ids: local",
        "f:1:18: environment_ids: invalid value \"local\": expected a list; write `[a, b]`",
    ),
    ("environment_ids: []", "environment_ids: empty list; remove the key for the default, `local`"),
    ("environment_ids: [a, a]", "f:1:22: environment_ids[1]: invalid value \"a\": duplicate item"),
    ("environment_ids: ['']", "environment_ids[0]: invalid value \"\": must not be empty"),
    ("environment_ids: [..]", "environment_ids[0]: invalid value \"..\": "),
    (
        "environment_ids: [1]",
        "environment_ids[0]: invalid value 1: expected text; put the value in quotes",
    ),
    ("environment_ids: [true]", "environment_ids[0]: invalid value true: expected text"),
    ("environment_ids: [~]", "environment_ids[0]: expected text, found no value"),
    ("environment_ids: [LONG]", "256 bytes"),
    ("listen: []", "listen: empty list"),
    ("listen: [here]", "listen[0]: invalid value \"here\": expected unix:PATH or tcp:HOST:PORT"),
    (
        "listen: ['tcp:0.0.0.0:1']",
        "listen[0]: invalid value \"tcp:0.0.0.0:1\": other machines could connect",
    ),
    (
        "insecure_tcp: false\nlisten: ['tcp:[::]:1']",
        "f:2:10: listen[0]: invalid value \"tcp:[::]:1\": other machines could connect",
    ),
    ("insecure_tcp: 1", "f:1:15: insecure_tcp: invalid value 1: expected true or false"),
    (
        "tls: x",
        "f:1:6: tls: invalid value \"x\": expected a mapping; the keys are certificate, key, client_ca",
    ),
    ("tls: {certificate: /none}", "f:1:6: tls.key: required key is missing"),
    ("tls: {certificate: /none, key: []}", "f:1:32: tls.key: expected text, found a list"),
    (
        "tls: {certificate: /dev/null, key: ''}\nlisten: ['tcp:0.0.0.0:1']",
        "f:1:36: tls.key: invalid value \"\": must not be empty",
    ),
    ("listen: ['tcp:here:1']", "expected tcp:HOST:PORT with an IP address"),
    ("allow: ['']", "allow[0]: invalid value \"\": must not be empty"),
    ("allow: [/dev/null]", "allow[0]: invalid value \"/dev/null\": is not a directory"),
    ("allow: [~/x]", "allow[0]: invalid value \"~/x\": `~` is not expanded"),
    (
        "allow: [\"a\\0b\"]",
        "allow[0]: invalid value \"a\\u{0}b\": must not contain a NUL character",
    ),
    (
        "socket: {mode: 0777}",
        "f:1:16: socket.mode: invalid value 0777: expected the mode of a socket: \"0600\"",
    ),
    ("socket: {mode: 0640}", "socket.mode: invalid value 0640: expected the mode of a socket"),
    ("socket: {mode: 432}", "socket.mode: invalid value 432: expected the mode of a socket"),
    ("socket: {mode: rw}", "socket.mode: invalid value \"rw\": expected the mode of a socket"),
    (
        "socket: {mode: '0666'}",
        "socket.mode: invalid value \"0666\": every user could call everything; add",
    ),
    (
        "socket: {mode: '0600', group: 0}",
        "socket.mode: invalid value \"0600\": denies the configured group",
    ),
    (
        "socket: {group: no-such-group}",
        "socket.group: invalid value \"no-such-group\": no group of this name on this machine",
    ),
    (
        "socket: {group: 4294967295}",
        "socket.group: invalid value 4294967295: expected the number of a group",
    ),
    ("socket: {owner: 0}", "f:1:10: socket.owner: unknown key; the keys are mode, group"),
    ("callers: []", "f:1:10: callers: empty list; remove the key to admit every caller"),
    (
        "callers: [x]",
        "callers[0]: invalid value \"x\": expected a mapping; the keys are name, uids, gids, sans,",
    ),
    ("callers: [{uids: [1]}]", "f:1:11: callers[0].name: required key is missing"),
    (
        "callers: [{name: a}]",
        "callers[0]: the rule matches no caller; set uids, gids, sans or token",
    ),
    (
        "callers: [{name: ' a', uids: [1]}]",
        "callers[0].name: invalid value \" a\": must not start or end with white space",
    ),
    ("callers: [{name: LONG, uids: [1]}]", "…: longer than 64 characters"),
    (
        "callers:\n- {name: a, uids: [1]}\n- {name: a, uids: [2]}",
        "f:3:10: callers[1].name: invalid value \"a\": the rule in line 2 has the same name; names must be unique",
    ),
    ("callers: [{name: a, uids: []}]", "callers[0].uids: empty list; remove the key"),
    (
        "callers: [{name: a, uids: [-1]}]",
        "callers[0].uids[0]: invalid value -1: no user of this name on this machine",
    ),
    (
        "callers: [{name: a, uids: [1, '1']}]",
        "callers[0].uids[1]: invalid value \"1\": duplicate item",
    ),
    (
        "callers: [{name: a, uids: [4294967295]}]",
        "invalid value 4294967295: expected the number of a user",
    ),
    (
        "callers: [{name: a, uids: [no-such-user]}]",
        "invalid value \"no-such-user\": no user of this name on this machine",
    ),
    (
        "callers: [{name: a, gids: [no-such-group]}]",
        "invalid value \"no-such-group\": no group of this name on this machine",
    ),
    ("callers: [{name: a, gids: [[]]}]", "callers[0].gids[0]: expected text, found a list"),
    (
        "callers: [{name: a, sans: ['*.b']}]",
        "callers[0].sans[0]: invalid value \"*.b\": only a SPIFFE ID",
    ),
    ("callers: [{name: a, sans: ['https://b']}]", "expected a DNS name or a `spiffe://` URI"),
    ("callers: [{name: a, sans: ['spiffe://a//b']}]", "expected a SPIFFE ID such as"),
    (
        "callers: [{name: a, token_file: /no/such}]",
        "callers[0].token_file: invalid value \"/no/such\": does not exist",
    ),
    (
        "callers: [{name: a, token_file: /etc/passwd}]",
        "invalid value \"/etc/passwd\": is accessible to all users (mode",
    ),
    (
        "callers: [{name: a, token_file: /}]",
        "callers[0].token_file: invalid value \"/\": is not a regular file",
    ),
    (
        "callers: [{name: a, uids: [1], roots: []}]",
        "f:1:39: callers[0].roots: empty list, so the rule would grant nothing; remove",
    ),
    (
        "callers: [{name: a, uids: [1], roots: [nope]}]",
        "callers[0].roots[0]: invalid value \"nope\": neither the id of a published root nor an absolute path",
    ),
    (
        "allow: [/a/b]\ncallers: [{name: a, uids: [1], roots: [/a/c]}]",
        "f:2:40: callers[0].roots[0]: invalid value \"/a/c\": neither inside an allowed directory nor above one",
    ),
    (
        "callers: [{name: a, uids: [1], roots: [/dev/null]}]",
        "invalid value \"/dev/null\": is not a directory",
    ),
    ("open_health: maybe", "f:1:14: open_health: invalid value \"maybe\": expected true or false"),
    ("roots: {a: /x}", "roots: expected a list, found a mapping"),
    ("roots: [/x]", "roots[0]: invalid value \"/x\": expected a mapping; the keys are id, path,"),
    ("roots:\n  - path: /x", "f:2:5: roots[0].id: required key is missing"),
    ("roots:\n  - id: a", "f:2:5: roots[0].path: required key is missing"),
    ("roots: [{id: , path: /x}]", "f:1:10: roots[0].id: has no value"),
    (
        "roots: [{id: a, path: /x, scope: me}]",
        "roots[0].scope: invalid value \"me\": expected repo, user, system or admin",
    ),
    (
        "roots: [{id: a, path: /x, follow_links: yes}]",
        "roots[0].follow_links: invalid value \"yes\": expected true or false",
    ),
    (
        "roots: [{id: a, path: /x, scope: system, follow_links: true}]",
        "roots[0].follow_links: invalid value true: links are not followed in scope system",
    ),
    (
        "roots:\n  - {id: a, path: /x}\n  - {id: a, path: /y}",
        "f:3:10: roots[1].id: invalid value \"a\": the root in line 2 has the same id; ids must be unique",
    ),
    (
        "roots: [{id: a, path: /x, follow: no}]",
        "roots[0].follow: unknown key; did you mean `follow_links`?",
    ),
    (
        "disabled_skills: [x]",
        "disabled_skills[0]: invalid value \"x\": expected a mapping; the keys are root, path, name",
    ),
    ("disabled_skills: [{}]", "disabled_skills[0]: set either `name`, or `root` and `path`"),
    ("disabled_skills: [{name: a, root: user}]", "set either `name`, or `root` and `path`"),
    ("disabled_skills: [{root: user}]", "f:1:19: disabled_skills[0].path: required key is missing"),
    ("disabled_skills: [{path: a}]", "disabled_skills[0].root: required key is missing"),
    (
        "disabled_skills: [{root: gone, path: a}]",
        "disabled_skills[0].root: invalid value \"gone\": no published root has this id",
    ),
    (
        "disabled_skills: [{root: user, path: /a}]",
        "disabled_skills[0].path: invalid value \"/a\": expected a path below the root",
    ),
    ("disabled_skills: [{root: user, path: a/../b}]", "expected a path below the root"),
    (
        "disabled_skills: [{root: user, path: 'a[b'}]",
        "invalid value \"a[b\": invalid glob: unclosed character class",
    ),
    (
        "disabled_skills: [{root: user, path: a/SKILL.md}]",
        "expected the directory of a skill, found a file",
    ),
    (
        "disabled_skills: [{name: ' a'}]",
        "disabled_skills[0].name: invalid value \" a\": must not start or end with white space",
    ),
    (
        "search: {excluded_dirs: [a/b]}",
        "search.excluded_dirs[0]: invalid value \"a/b\": expected the name of a directory",
    ),
    (
        "search: {resource_dirs: [..]}",
        "search.resource_dirs[0]: invalid value \"..\": expected the name of a directory",
    ),
    ("limits: {}\nlimits: {}", "f:2:1: limits: duplicate key, first set in line 1"),
    ("- a", "f:1:1: expected a mapping, found a list; the keys are environment_ids,"),
    ("a", "f:1:1: invalid value \"a\": expected a mapping"),
    ("a: [1\nb: 2", "f:2:2: YAML: "),
    ("a: &x 1", "f:1:4: anchors are not supported"),
    ("[[[[[[[[[[[[[[[[[[[[", "f:1:17: is nested too deep"),
    (
        "roots: []\ndisabled_skills: [{root: user, path: a}]",
        "f:2:26: disabled_skills[0].root: invalid value \"user\": no published root has this id",
    ),
    (
        "watch: {debounce: 11s}",
        "f:1:19: watch.debounce: invalid value \"11s\": expected a duration from 0ms to 10s",
    ),
    ("watch: {debounce: soon}", "watch.debounce: invalid value \"soon\": expected a duration"),
    (
        "watch: {debounce: 1s}",
        "watch.debounce: invalid value \"1s\": max_debounce, 500ms, must not be less than debounce, 1s",
    ),
    (
        "limits: {max_diagnostics: 1001}",
        "limits.max_diagnostics: invalid value 1001: expected a whole number from 1 to 1000",
    ),
];

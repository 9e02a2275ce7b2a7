//! Keys at the top of a config file, and of the sections `search`, `watch`, `sandbox`, `log` and
//! `metrics`.

use super::keys::KeyDefault::{Effect, Required, Value};
use super::keys::KeyValue::{Boolean, Choice, List, Section, SectionList, Text};
use super::keys::{ConfigKey, KeyDefault, KeyValue, NEXT_CALL, RESCAN, key_table};
use super::{callers, disabled_skills, limits, roots, socket_access, tls, traces, trust};
use crate::daemon::catalog::WatchTiming;
use crate::daemon::model::LandlockMode;
use crate::daemon::scan::search::{DEFAULT_RESOURCE_DIRS, DEFAULT_SKIPPED_DIRS};
use crate::log_config;
use humantime::format_duration;
use std::time::Duration;

/// Longest time for which a change may be debounced.
pub const LONGEST_DEBOUNCE: Duration = Duration::from_secs(10);

// Keys, in the order of the example file.
key_table!(
    KEYS,
    ENVIRONMENT_IDS = ConfigKey::new(
        "environment_ids",
        List("ids of 1 to 256 bytes"),
        Value(|| "[local]".to_owned()),
        "Environments whose roots this daemon resolves.",
    )
    .with_flag("--environment-id")
    .with_reload(RESCAN),
    LISTEN = ConfigKey::new(
        "listen",
        List("addresses `unix:PATH` or `tcp:HOST:PORT`"),
        Effect {
            effect: "the sockets of the socket unit, or a Unix socket that clients find",
            example: "[unix:/run/caproot/caproot.sock, tcp:127.0.0.1:7420]",
        },
        "Addresses to listen on. Port 0 takes a free port. Without `tls`, the host must be a loopback \
         address. The daemon serves the sockets of a socket unit in addition. The default Unix socket \
         is `/run/caproot/caproot.sock` under a systemd unit with `RuntimeDirectory=caproot`, else \
         `caproot.sock` in `$XDG_RUNTIME_DIR`, else `caproot-UID/caproot.sock` in the temporary \
         directory.",
    )
    .with_flag("--listen"),
    SOCKET = ConfigKey::new(
        "socket",
        Section(&socket_access::KEYS),
        Effect {
            effect: "only the user of the daemon; in the runtime directory of a systemd unit, in \
                addition the group `caproot` if the group exists",
            example: "",
        },
        "Access to the Unix sockets that the daemon creates. The socket unit sets the access to its \
         own sockets.",
    ),
    TLS = ConfigKey::new(
        "tls",
        Section(&tls::KEYS),
        Effect { effect: "TCP without TLS", example: "" },
        "TLS on every TCP listener. The files are PEM. The daemon reads the files again when they \
         change.",
    )
    .with_reload("applied to new connections; adding or removing the section needs a restart"),
    INSECURE_TCP = ConfigKey::new(
        "insecure_tcp",
        Boolean,
        Value(|| "false".to_owned()),
        "Whether other machines may connect over TCP without TLS. An attacker on the network can then \
         read and change all traffic.",
    )
    .with_flag("--insecure-tcp")
    .with_reload("applied"),
    ALLOW = ConfigKey::new(
        "allow",
        List("directories"),
        Effect {
            effect: "only the published roots",
            example: "[/opt/codex/plugins]",
        },
        "Directories below which callers may select roots, and below which link targets may lie. The \
         published roots are always allowed.",
    )
    .with_flag("--allow")
    .with_reload(roots::RELOAD),
    ROOTS = ConfigKey::new(
        "roots",
        SectionList { keys: &roots::KEYS, alternative: Some(&roots::PRESET) },
        Effect {
            effect: "the default roots, if `allow` is not set either",
            example: "",
        },
        "Published roots. The flag replaces the whole list. The default roots are the existing \
         directories of user (`$HOME/.agents/skills`), codex (`$CODEX_HOME/skills`), system \
         (`$CODEX_HOME/skills/.system`) and admin (`/etc/codex/skills`), each with this id, and \
         those of the project: repo (`.agents/skills` of the working directory), repo-2 (of the \
         directory above it) and so on, up to the root of the repository.",
    )
    .with_flag("--root")
    .with_reload(roots::RELOAD),
    CALLERS = ConfigKey::new(
        "callers",
        SectionList { keys: &callers::KEYS, alternative: None },
        Effect {
            effect: "every caller that can connect may access everything",
            example: "",
        },
        "Rules that admit callers; at most 256. A rule matches a caller that has one of its `uids`, \
         `gids` or `sans` and, if the rule has a `token_file`, sends the token. A rule without `uids`, \
         `gids` and `sans` needs only the token. A caller may access the roots of all rules that \
         match. If the key is set, root and the user of the daemon need a rule, too.",
    )
    .with_reload(NEXT_CALL),
    OPEN_HEALTH = ConfigKey::new(
        "open_health",
        Boolean,
        Value(|| "true".to_owned()),
        "Whether the health service answers callers that no rule in `callers` matches.",
    )
    .with_reload(NEXT_CALL),
    OPEN_REFLECTION = ConfigKey::new(
        "open_reflection",
        Boolean,
        Value(|| "false".to_owned()),
        "Whether the reflection services answer callers that no rule in `callers` matches.",
    )
    .with_reload(NEXT_CALL),
    AUDIT = ConfigKey::new(
        "audit",
        Boolean,
        Value(|| "false".to_owned()),
        "Whether the audit log has every call, with the caller, the request and the result. Denied \
         calls are always logged.",
    )
    .with_flag("--audit"),
    DISABLED_SKILLS = ConfigKey::new(
        "disabled_skills",
        SectionList { keys: &disabled_skills::KEYS, alternative: Some(&disabled_skills::NAME) },
        Effect { effect: "every skill is listed and readable", example: "" },
        "Skills that are neither listed nor readable; at most 1000 rules. A rule has either `root` and \
         `path`, or `name`.",
    )
    .with_reload(RESCAN),
    TRUST = ConfigKey::new(
        "trust",
        Section(&trust::KEYS),
        Effect {
            effect: "skills and plugins need no approval",
            example: "",
        },
        "Approval of skills and plugins by a lock.",
    )
    .with_reload(RESCAN),
    SEARCH = ConfigKey::new(
        "search",
        Section(&SEARCH_KEYS),
        KeyDefault::Section,
        "Directories that scans skip.",
    ),
    LIMITS = ConfigKey::new(
        "limits",
        Section(&limits::KEYS),
        KeyDefault::Section,
        "Limits of the daemon. `GetExecutor` reports each limit, and errors name the limit that was \
         reached.",
    ),
    WATCH = ConfigKey::new(
        "watch",
        Section(&WATCH_KEYS),
        KeyDefault::Section,
        "Time between a change and its publication.",
    ),
    WATCH_CONFIG = ConfigKey::new(
        "watch_config",
        Boolean,
        Value(|| "false".to_owned()),
        "Whether the daemon reloads this file when the file changes, without `systemctl reload` or \
         SIGHUP.",
    )
    .with_flag("--watch-config"),
    SANDBOX = ConfigKey::new(
        "sandbox",
        Section(&SANDBOX_KEYS),
        KeyDefault::Section,
        "Restrictions that the daemon applies to itself before it serves.",
    ),
    LOG = ConfigKey::new(
        "log",
        Section(&LOG_KEYS),
        KeyDefault::Section,
        "Log of the daemon.",
    ),
    READINESS = ConfigKey::new(
        "readiness",
        Section(&READINESS_KEYS),
        Effect { effect: "the readiness of skills with requirements is unknown", example: "" },
        "Programs and variables that the daemon looks up for skills that declare to need them. Nothing \
         is run.",
    ),
    METRICS = ConfigKey::new(
        "metrics",
        Section(&METRICS_KEYS),
        Effect { effect: "no metrics are served", example: "" },
        "Prometheus metrics, served at `/metrics` over HTTP.",
    ),
    TRACES = ConfigKey::new(
        "traces",
        Section(&traces::KEYS),
        Effect { effect: "no spans are sent", example: "" },
        "OpenTelemetry spans of calls.",
    ),
);

key_table!(
    SEARCH_KEYS,
    EXCLUDED_DIRS = ConfigKey::new(
        "search.excluded_dirs",
        List("names of directories"),
        Value(|| list(&DEFAULT_SKIPPED_DIRS)),
        "Directories that are neither scanned nor read.",
    ),
    RESOURCE_DIRS = ConfigKey::new(
        "search.resource_dirs",
        List("names of directories"),
        Value(|| list(&DEFAULT_RESOURCE_DIRS)),
        "Directories that are not scanned directly inside a skill. Their files are readable.",
    ),
);

key_table!(
    WATCH_KEYS,
    DEBOUNCE = ConfigKey::new(
        "watch.debounce",
        KeyValue::Duration {
            max: LONGEST_DEBOUNCE
        },
        Value(|| format_duration(WatchTiming::default().debounce).to_string()),
        "Time after the last event until a change is published. `0ms` publishes at once.",
    ),
    MAX_DEBOUNCE = ConfigKey::new(
        "watch.max_debounce",
        KeyValue::Duration {
            max: LONGEST_DEBOUNCE
        },
        Value(|| format_duration(WatchTiming::default().max_debounce).to_string()),
        "Longest time after the first event until a change is published. Must not be less than \
         `debounce`.",
    ),
);

key_table!(
    SANDBOX_KEYS,
    LANDLOCK = ConfigKey::new(
    "sandbox.landlock",
    Choice(&LandlockMode::NAMES),
    Value(|| "best-effort".to_owned()),
    "Whether Landlock restricts the daemon. With `best-effort`, the daemon applies the restrictions that \
     the kernel supports. With `required`, the daemon does not start if the kernel lacks one. With `off`, \
     Landlock is not used.",
)
.with_flag("--sandbox"),
);

key_table!(
    LOG_KEYS,
    LOG_FILTER = ConfigKey::new(
        "log.filter",
        Text("level, or filter by module such as `caproot=debug,h2=warn`"),
        Value(|| log_config::DEFAULT_FILTER.to_owned()),
        "Lines that are logged. The levels are `off`, `error`, `warn`, `info`, `debug` and `trace`. The \
         environment variable `CAPROOT_LOG` replaces the value, too.",
    )
    .with_flag("--log")
    .with_reload("applied"),
    LOG_FORMAT = ConfigKey::new(
        "log.format",
        Choice(&log_config::FORMATS),
        Value(|| "text".to_owned()),
        "Format of log lines. `text` and `json` go to stderr; `json` is one JSON object a line. If stderr \
         is the journal of systemd, `text` has the priority and no time. `journald` sends fields to the \
         journal.",
    ),
);

key_table!(
    READINESS_KEYS,
    READINESS_PATH = ConfigKey::new(
        "readiness.path",
        List("paths of directories, at most 64"),
        Effect {
            effect: "each program is unknown",
            example: "[/usr/local/bin, /usr/bin]",
        },
        "Directories of the programs that the shell of an agent finds, as in its PATH. If the daemon \
         cannot see a directory, a program that no other directory has is unknown.",
    ),
    READINESS_VARIABLES = ConfigKey::new(
        "readiness.variables",
        List("names of variables, at most 256"),
        Effect {
            effect: "each variable is unknown",
            example: "[GITHUB_TOKEN]",
        },
        "Variables of which callers learn whether they are set in the environment of the daemon. The \
         value is never sent.",
    ),
);

key_table!(
    METRICS_KEYS,
    METRICS_LISTEN = ConfigKey::new(
        "metrics.listen",
        Text("`unix:PATH`, or `tcp:HOST:PORT` with a loopback address"),
        Required {
            example: "tcp:127.0.0.1:9464",
        },
        "Address of the metrics. Port 0 takes a free port.",
    ),
);

fn list(names: &[&str]) -> String {
    format!("[{}]", names.join(", "))
}

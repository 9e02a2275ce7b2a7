//! `caproot mcp`: the skills of a daemon for MCP hosts.

use crate::agent::mcp::{
    ConnectFailure, HttpAllowlist, HttpListener, MAX_NAMES_BYTES, ServedDaemon, ServerTexts,
    ServerTransport, TOOL_NAMES, serve,
};
use crate::cli::args::{
    ConnectionArgs, LockFileArgs, ProductArgs, SelectionArgs, parse_result_bytes,
};
use crate::cli::exit;
use crate::cli::failure::{CommandFailure, CommandResult as _};
use crate::cli::log_args::LogArgs;
use crate::cli::output::{is_plain_word, print_stderr, write_stdout};
use crate::cli::signals::run_until_signal;
use caproot_client::CallError;
use caproot_core::net::endpoint::ProcessEnv;
use caproot_core::text::{SentenceResult as _, escape_text};
use caproot_session::{DEFAULT_RESULT_BYTES, Session, SessionOptions, SkillNameListOptions};
use clap::Args;
use std::borrow::Cow;
use std::net::SocketAddr;

/// Serve the skills of a running daemon to MCP hosts
///
/// The tools `skills_list`, `skills_read` and `skills_search` and the instructions of the server name
/// skills. Without --http, the server uses stdin and stdout, as hosts start it, and ends with stdin.
/// With --http, it prints one line, `listening http://…/mcp`, and serves until SIGINT or SIGTERM. If no
/// daemon runs yet, or the daemon is lost, the server answers hosts, and connects by itself.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  caproot mcp                                   # published roots, over stdio
  caproot mcp --root ./skills                   # a directory
  caproot mcp --no-tools                        # for models that see resources
  caproot mcp --http 127.0.0.1:7421             # over HTTP, for this machine
  caproot mcp --http 0.0.0.0:7421 --insecure-http --allow-host mcp.example.org")]
#[allow(clippy::struct_excessive_bools)] // each is a flag
pub struct McpArgs {
    #[command(flatten)]
    product: ProductArgs,
    #[command(flatten)]
    lock: LockFileArgs,
    /// Limit of the result of a tool in bytes, at most 65,536. A long SKILL.md then needs fewer calls
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = DEFAULT_RESULT_BYTES,
        value_parser = parse_result_bytes
    )]
    result_bytes: usize,
    /// Serve no tools, for hosts whose model sees resources
    #[arg(long)]
    no_tools: bool,
    /// Limit of the names of skills in the instructions and in the description of `skills_read`, in
    /// bytes, at most 2000. Only names of the format are named; other skills are counted
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = MAX_NAMES_BYTES,
        value_parser = parse_names_budget
    )]
    names_budget: usize,
    /// Add descriptions to the names in the description of `skills_read`. A model trusts the
    /// description of a tool more than a message, and third parties write the descriptions
    #[arg(long, conflicts_with = "no_tools")]
    descriptions: bool,
    /// Let Claude Code hide the tools until its model searches for them
    #[arg(long, conflicts_with = "no_tools")]
    defer_tools: bool,
    /// Tell the model to run scripts by `caproot exec` in its shell, which is on the executor. The
    /// default for published roots of a Unix socket, except with --insecure-http
    #[arg(long, overrides_with = "no_scripts")]
    scripts: bool,
    /// Do not tell the model to run scripts
    #[arg(long, overrides_with = "scripts")]
    no_scripts: bool,
    /// Serve over streamable HTTP at this address, at the path /mcp; port 0 takes a free port
    #[arg(long, value_name = "ADDRESS:PORT")]
    http: Option<SocketAddr>,
    /// Host name by which clients may address the server, in addition to localhost; repeat for more
    #[arg(long, value_name = "HOST[:PORT]", requires = "http", value_parser = parse_host)]
    allow_host: Vec<String>,
    /// Origin of pages that may send requests, in addition to pages of this machine; repeat for
    /// more
    #[arg(long, value_name = "SCHEME://HOST[:PORT]", requires = "http", value_parser = parse_origin)]
    allow_origin: Vec<String>,
    /// Allow --http at an address that is not loopback: every client on the network can then read
    /// every skill, and an attacker on the network can change the responses
    #[arg(long, requires = "http")]
    insecure_http: bool,
    #[command(flatten)]
    log: LogArgs,
    #[command(flatten, next_help_heading = "Connection options")]
    connection: ConnectionArgs,
    #[command(flatten, next_help_heading = "Root options")]
    selection: SelectionArgs,
}

fn parse_names_budget(text: &str) -> Result<usize, String> {
    let bytes: usize = text.parse().map_err(|_| "expected a number of bytes")?;
    if bytes > MAX_NAMES_BYTES {
        return Err(format!("must be at most {MAX_NAMES_BYTES}"));
    }
    Ok(bytes)
}

/// Rejects wildcards: the SDK would not compare the header with them.
fn parse_host(text: &str) -> Result<String, String> {
    match text.parse::<http::uri::Authority>() {
        Ok(authority) if !authority.as_str().contains(['@', '*']) => Ok(text.to_owned()),
        _ => Err("expected HOST or HOST:PORT".to_owned()),
    }
}

/// Returns the origin with its port, which defaults to the port of the scheme. An origin without a
/// port would match every port.
fn parse_origin(text: &str) -> Result<String, String> {
    let expected = "expected SCHEME://HOST or SCHEME://HOST:PORT";
    let uri = text.parse::<http::Uri>().map_err(|_| expected)?;
    let scheme = uri.scheme_str().ok_or(expected)?;
    let authority = uri.authority().ok_or(expected)?;
    let bare = format!("{scheme}://{authority}");
    let port = match (authority.port_u16(), scheme) {
        (Some(port), _) => port,
        (None, "http") => 80,
        (None, "https") => 443,
        (None, _) => return Err("the port is missing".to_owned()),
    };
    if bare != text || bare.contains('@') {
        return Err("expected only SCHEME://HOST:PORT".to_owned());
    }
    Ok(format!("{scheme}://{}:{port}", authority.host()))
}

/// Serves until stdin ends, a signal comes or the daemon rejects the watch.
pub async fn run(args: McpArgs, env: &ProcessEnv) -> Result<u8, CommandFailure> {
    run_until_signal(connect_and_serve(args, env)).await
}

async fn connect_and_serve(args: McpArgs, env: &ProcessEnv) -> Result<u8, CommandFailure> {
    args.check_transport()?;
    args.log.start()?;
    let transport = match args.http {
        None => ServerTransport::Stdio,
        Some(address) => {
            let listener = bind_listener(address)?;
            let allowed = HttpAllowlist {
                hosts: args.allow_host.clone(),
                origins: args.allow_origin.clone(),
            };
            ServerTransport::Http(listener, allowed)
        }
    };

    let texts = ServerTexts {
        has_tools: !args.no_tools,
        always_load: !args.defer_tools,
        names: SkillNameListOptions {
            budget: args.names_budget,
            with_descriptions: args.descriptions,
        },
        exec_command: args.exec_command(),
        has_lock: !args.lock.values().is_empty(),
    };
    let options = ServedDaemon::session_options(SessionOptions {
        product: args.product.product.clone(),
        tool_names: TOOL_NAMES,
        result_bytes: args.result_bytes,
        scripts: texts.exec_command.is_some(),
        ..SessionOptions::default()
    });

    let connect = async || {
        let connected = connect_to_daemon(&args, &options, env).await;
        connected.map_err(|failure| match failure.exit_code() {
            exit::NO_DAEMON => ConnectFailure::Unavailable(failure.sentence_with_hint()),
            _ => ConnectFailure::Final(ServeFailure(failure)),
        })
    };
    // Boxed, because the future is large and would enlarge the future of every command.
    let served = Box::pin(serve(connect, transport, texts, |sentence| {
        print_stderr(&[format!("caproot: {}", escape_text(&sentence))]);
    }));
    served.await.map_err(|ServeFailure(failure)| failure)?;
    Ok(exit::OK)
}

impl McpArgs {
    /// Returns the command by which the shell of the model runs a script of the same skills, if the shell is
    /// on the machine of the daemon, as far as the flags tell.
    fn exec_command(&self) -> Option<String> {
        let is_same_machine = self.connection.is_unix_socket()
            && self.selection.selects_published()
            && !self.insecure_http;
        if !self.scripts && (self.no_scripts || !is_same_machine) {
            return None;
        }

        let mut command = "caproot exec".to_owned();
        let endpoint = self.connection.endpoint_values();
        for (flag, value) in endpoint.into_iter().chain(self.lock.values()) {
            command = format!("{command} {flag} {}", quote_shell_word(&value));
        }
        Some(command)
    }

    /// Rejects flags that the transport does not allow.
    fn check_transport(&self) -> Result<(), CommandFailure> {
        match self.http {
            None if self.selection.is_of_stdin() => {
                let sentence =
                    "--selected - cannot be used here: stdin belongs to the MCP host; name a file";
                Err(CommandFailure::new(exit::USAGE, sentence))
            }
            Some(address) if !address.ip().to_canonical().is_loopback() && !self.insecure_http => {
                let sentence = "--http accepts only loopback addresses";
                Err(CommandFailure::new(exit::BAD_CONFIG, sentence).with_hint(
                    "use a proxy with TLS, or set --insecure-http, and --allow-host for the name of this machine",
                ))
            }
            _ => Ok(()),
        }
    }
}

/// Connects, selects the roots, and starts the session.
async fn connect_to_daemon(
    args: &McpArgs,
    options: &SessionOptions,
    env: &ProcessEnv,
) -> Result<ServedDaemon, CommandFailure> {
    let options = SessionOptions {
        trust: args.lock.read_trust()?,
        published_roots: args.selection.selects_published(),
        ..options.clone()
    };
    let mut executor = args.connection.connect(env).await?;
    let roots = args.selection.selected_roots(&mut executor, env).await?;

    let session = Session::start(&executor.session_fleet(), roots, &options).await?;

    let daemon = ServedDaemon::new(executor.client.clone(), session);
    Ok(if args.selection.selects_published() {
        daemon.following_published_roots(executor.fleet_environment())
    } else {
        daemon
    })
}

/// Returns a text as one word for a POSIX shell.
fn quote_shell_word(text: &str) -> Cow<'_, str> {
    if is_plain_word(text) {
        return text.into();
    }
    format!("'{}'", text.replace('\'', r"'\''")).into()
}

/// Failure of the server. A host that closes its end of stdout first is a failure.
struct ServeFailure(CommandFailure);

impl From<CallError> for ServeFailure {
    fn from(error: CallError) -> Self {
        Self(match error {
            CallError::Output(error) => CommandFailure::new(
                exit::OUTPUT_FAILED,
                format!("cannot write to the MCP host: {error}"),
            ),
            error => error.into(),
        })
    }
}

fn bind_listener(address: SocketAddr) -> Result<HttpListener, CommandFailure> {
    let bound = HttpListener::bind(address).and_then(|listener| {
        let url = listener.url()?;
        Ok((listener, url))
    });
    let (listener, url) = bound
        .context(format_args!("cannot listen on {address}"))
        .or_exit(exit::CANNOT_LISTEN)?;

    write_stdout(|stdout| writeln!(stdout, "listening {url}"))?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::{parse_host, parse_origin, quote_shell_word};

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quote_shell_word("unix:/run/c.sock"), "unix:/run/c.sock");
        assert_eq!(quote_shell_word("a b"), "'a b'");
        assert_eq!(quote_shell_word("it's $x"), r"'it'\''s $x'");
        assert_eq!(quote_shell_word(""), "''");
    }

    #[test]
    fn only_exact_hosts_and_origins_are_accepted() {
        for good in [
            "skills.example.org",
            "skills.example.org:8443",
            "[::1]:80",
            "10.0.0.1",
        ] {
            assert_eq!(parse_host(good).as_deref(), Ok(good));
        }
        for bad in ["", "*", "a b", "http://a", "a/b", "me@a", "*.example.org"] {
            assert!(parse_host(bad).is_err(), "{bad:?}");
        }
        assert_eq!(
            parse_origin("https://a.example").as_deref(),
            Ok("https://a.example:443")
        );
        assert_eq!(
            parse_origin("http://a.example").as_deref(),
            Ok("http://a.example:80")
        );
        assert_eq!(
            parse_origin("http://[::1]:3000").as_deref(),
            Ok("http://[::1]:3000")
        );
        for bad in [
            "",
            "*",
            "null",
            "a.example",
            "https://",
            "https://a/b",
            "https://a/",
            "app://a",
        ] {
            assert!(parse_origin(bad).is_err(), "{bad:?}");
        }
    }
}

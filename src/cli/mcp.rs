//! `caproot mcp`: the skills of a daemon for MCP hosts. Leaves the protocol to the room `mcp`.

use super::args::{ConnectionArgs, SelectionArgs};
use super::exit;
use super::failure::Failure;
use super::fleet;
use super::output::{print, say};
use super::signals::stop_signal;
use super::text::shown;
use crate::endpoint::Env;
use crate::mcp::{Allowed, Followed, Listener, Way, serve};
use crate::session::{Options, Session, ToolNames};
use clap::Args;
use std::net::SocketAddr;

/// Serve the skills of a running daemon to MCP hosts
///
/// Without --http, the server speaks over stdin and stdout, as hosts start it, and ends with stdin.
/// With --http, it prints one line, `listening http://…/mcp`, and serves until SIGINT or SIGTERM. When
/// the daemon is gone, calls fail until it is back; the server connects again by itself.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  caproot mcp                                    every published root, over stdio
  caproot mcp --root ./skills                    a directory
  caproot mcp --tools                            for hosts that show a model tools only
  caproot mcp --http 127.0.0.1:7421              over HTTP, for this machine only
  caproot mcp --http 0.0.0.0:7421 --insecure-http --allow-host skills.example.org")]
pub(super) struct McpArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
    #[command(flatten)]
    selection: SelectionArgs,
    /// Only skills for this product, or for every product
    #[arg(long, value_name = "PRODUCT", default_value = "", hide_default_value = true)]
    product: String,
    /// Also offer the tools `skills_list` and `skills_read`, for hosts whose model sees no resources; their
    /// roots stay those of the start
    #[arg(long)]
    tools: bool,
    /// Serve over streamable HTTP at this address, at the path /mcp; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT")]
    http: Option<SocketAddr>,
    /// A name that clients may call this machine by, beside localhost; repeat for more
    #[arg(long, value_name = "HOST[:PORT]", requires = "http", value_parser = host)]
    allow_host: Vec<String>,
    /// Where pages come from that may ask, beside this machine; repeat for more
    #[arg(long, value_name = "SCHEME://HOST[:PORT]", requires = "http", value_parser = origin)]
    allow_origin: Vec<String>,
    /// Let --http be another address than loopback: whoever reaches it can read every skill, and
    /// whoever is on the way can change what is read
    #[arg(long, requires = "http")]
    insecure_http: bool,
}

/// A `Host` that is compared, and never one that is passed over.
fn host(text: &str) -> Result<String, String> {
    let authority = text.parse::<http::uri::Authority>().ok();
    let fits = authority.is_some_and(|authority| !authority.as_str().contains(['@', '*']));
    fits.then(|| text.to_owned()).ok_or_else(|| "it is no HOST or HOST:PORT".to_owned())
}

/// With its port, which by default is that of the scheme: one without would mean every port.
fn origin(text: &str) -> Result<String, String> {
    let uri = text.parse::<http::Uri>().ok();
    let parts = uri.as_ref().and_then(|uri| Some((uri.scheme_str()?, uri.authority()?)));
    let (scheme, authority) = parts.ok_or("it is no SCHEME://HOST or SCHEME://HOST:PORT")?;
    let bare = format!("{scheme}://{authority}");
    let port = match (authority.port_u16(), scheme) {
        (Some(port), _) => port,
        (None, "http") => 80,
        (None, "https") => 443,
        (None, _) => return Err("its port is missing".to_owned()),
    };
    if bare != text || bare.contains('@') {
        return Err("an origin is SCHEME://HOST:PORT, and nothing more".to_owned());
    }
    Ok(format!("{scheme}://{}:{port}", authority.host()))
}

/// Serves until something ends it.
pub(super) async fn run(args: McpArgs, env: &Env) -> Result<u8, Failure> {
    let stop = stop_signal().map_err(|error| {
        Failure::new(exit::INTERNAL, format!("signals cannot be received: {error}"))
    })?;
    tokio::select! {
        () = stop => Ok(exit::OK),
        ended = connected(args, env) => ended,
    }
}

async fn connected(args: McpArgs, env: &Env) -> Result<u8, Failure> {
    if args.http.is_none() && args.selection.is_of_stdin() {
        let sentence = "stdin is the MCP host's; name a file with --selected";
        return Err(Failure::new(exit::USAGE, sentence));
    }
    if args.http.is_some_and(|http| !http.ip().to_canonical().is_loopback()) && !args.insecure_http
    {
        let sentence = "over HTTP, skills are served on loopback addresses only";
        return Err(Failure::new(exit::CONFIG, sentence).hint(
            "put a proxy with TLS in front of it; or say --insecure-http, and --allow-host for its name",
        ));
    }
    let (mut client, executor) = args.connection.executor(env).await?;
    let roots = args.selection.roots(&mut client, env).await?;
    let published = args.selection.is_published();
    let way = match args.http {
        None => Way::Stdio,
        Some(address) => {
            let listener = listen(address)?;
            Way::Http(listener, Allowed { hosts: args.allow_host, origins: args.allow_origin })
        }
    };
    let tools = if args.tools {
        // Hosts refuse a dot in the name of a tool.
        let tool_names =
            ToolNames::flat("skills", "_").map_err(|error| Failure::new(exit::INTERNAL, error))?;
        let options = Options { product: args.product.clone(), tool_names, ..Options::default() };
        let fleet = fleet::of_one(&executor, &roots);
        let session = Session::start(&fleet, roots.clone(), &options);
        Some(session.await.map_err(|error| Failure::new(exit::CONFIG, error))?)
    } else {
        None
    };
    let followed = Followed { roots, published, product: args.product };
    let tell = |sentence: String| say(&[format!("caproot: {}", shown(&sentence))]);
    // On the heap: it is large, and every command would be.
    Box::pin(serve(client, followed, way, tools, tell)).await?;
    Ok(exit::OK)
}

fn listen(address: SocketAddr) -> Result<Listener, Failure> {
    let cannot = |error| {
        Failure::new(exit::CANNOT_LISTEN, format!("{address} cannot be listened on: {error}"))
    };
    let listener = Listener::bind(address).map_err(cannot)?;
    let url = listener.url().map_err(cannot)?;
    print(|stdout| writeln!(stdout, "listening {url}"))?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::{host, origin};

    #[test]
    fn hosts_and_origins() {
        for good in ["skills.example.org", "skills.example.org:8443", "[::1]:80", "10.0.0.1"] {
            assert_eq!(host(good).as_deref(), Ok(good));
        }
        for bad in ["", "*", "a b", "http://a", "a/b", "me@a", "*.example.org"] {
            assert!(host(bad).is_err(), "{bad:?}");
        }
        assert_eq!(origin("https://a.example").as_deref(), Ok("https://a.example:443"));
        assert_eq!(origin("http://a.example").as_deref(), Ok("http://a.example:80"));
        assert_eq!(origin("http://[::1]:3000").as_deref(), Ok("http://[::1]:3000"));
        for bad in
            ["", "*", "null", "a.example", "https://", "https://a/b", "https://a/", "app://a"]
        {
            assert!(origin(bad).is_err(), "{bad:?}");
        }
    }
}

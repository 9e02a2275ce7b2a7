//! Process of the storm's executors, so that their memory is measured alone. Commands go in by stdin, and
//! each gets one line as its answer.

use crate::Outcome;
use crate::options::Options;
use crate::process_memory::resident_kib;
use crate::storm::executors::{ExecutorCommands, StormExecutors};
use std::io::{self, BufRead as _, Write as _};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// How long the process may take for one command, and for its end.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(3);

/// Process of the executors.
pub(crate) struct ExecutorProcess {
    child: Child,
    /// `None` once the process was told to end.
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl ExecutorProcess {
    /// Starts the process. Its executors have links to the servers, and their files in `dir`.
    pub(crate) async fn start(options: &Options, servers: &[String], dir: &Path) -> Outcome<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--saved").arg(dir);
        command.args(["--executors", &options.executors.to_string()]);
        for url in servers {
            command.args(["--servers", url]);
        }
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn()?;
        let stdin = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().ok_or("stdout is piped")?).lines();
        let mut process = Self {
            child,
            stdin,
            lines,
        };
        let line = process.lines.next_line().await?;
        if line.as_deref() != Some("ready") {
            return Err(format!("the process of the executors said {line:?}").into());
        }
        Ok(process)
    }

    /// Ends the process, which ends its daemons.
    pub(crate) async fn stop(&mut self) -> Outcome<()> {
        self.stdin = None;
        timeout(ANSWER_TIMEOUT, self.child.wait()).await??;
        Ok(())
    }

    pub(crate) fn resident_kib(&self) -> Outcome<f64> {
        resident_kib(
            &self
                .child
                .id()
                .ok_or("the process of the executors ended")?
                .to_string(),
        )
    }
}

impl ExecutorCommands for ExecutorProcess {
    async fn command(&mut self, line: &str) -> Outcome<String> {
        let stdin = self
            .stdin
            .as_mut()
            .ok_or("the process of the executors ended")?;
        stdin.write_all(format!("{line}\n").as_bytes()).await?;
        let answer = timeout(ANSWER_TIMEOUT, self.lines.next_line()).await;
        let answer = answer.map_err(|_| format!("no answer of the executors to: {line}"))??;
        let answer = answer.ok_or("the process of the executors ended")?;
        let result = answer.strip_prefix("ok ").map(str::to_owned);
        result.ok_or_else(|| answer.into())
    }
}

/// Serves commands until stdin ends.
pub(crate) async fn serve_commands(options: &Options) -> Outcome<()> {
    let real = options.storm_size().real();
    let mut executors = StormExecutors::new(options.servers.clone(), real, &options.saved)?;
    answer("ready")?;

    let (sender, mut lines) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        // The receiver is gone at the end.
        io::stdin()
            .lock()
            .lines()
            .map_while(Result::ok)
            .try_for_each(|line| sender.send(line))
    });
    while let Some(line) = lines.recv().await {
        match executors.command(&line).await {
            Ok(said) => answer(&format!("ok {said}"))?,
            Err(error) => answer(&format!("error {line}: {error}"))?,
        }
    }
    Ok(())
}

fn answer(line: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}")?;
    stdout.flush()
}

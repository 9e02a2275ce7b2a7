//! Processes of the storm's executors, so that their memory is measured alone, and no process needs more open
//! files than it may have. Commands go in by stdin, and each gets one line as its answer.

use crate::Outcome;
use crate::options::Options;
use crate::process_memory::resident_kib;
use crate::storm::executors::{ExecutorCommands, StormExecutors};
use futures_util::future::try_join_all;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs;
use std::io::{self, BufRead as _, Write as _};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// How long a process may take for one command, and for its end.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(3);
/// Open files of a process in addition to those of its executors.
const RESERVED_FILES: usize = 512;
/// Most open files of an executor without tunnels: a listener and a link, and both once more while the
/// executor has a clone.
const EXECUTOR_FILES: usize = 4;
/// Open files of a tunnel to a daemon in the process: both ends of a connection.
const TUNNEL_FILES: usize = 2;
/// Maximum number of processes.
const MAX_PROCESSES: usize = 32;

/// Division of the executors into processes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProcessPlan {
    pub(crate) processes: usize,
    /// Maximum number of open files that a process needs.
    pub(crate) files: usize,
    /// Maximum number of open files that a process may have.
    pub(crate) limit: usize,
}

impl ProcessPlan {
    /// Divides the executors by the limit of open files, which is raised to the hard limit. Returns an error if
    /// an executor, or a broker with all links, would need more.
    pub(crate) fn new(options: &Options) -> Outcome<Self> {
        let limit = raise_open_files()?;
        let size = options.storm_size();
        let tunnels = (size.fleets * size.mirrors).div_ceil(size.executors.max(1));
        let of_executor = EXECUTOR_FILES + TUNNEL_FILES * tunnels;
        let most = limit.saturating_sub(RESERVED_FILES) / of_executor;
        let needed = RESERVED_FILES + size.executors.max(of_executor);
        let processes = size.executors.div_ceil(most.max(1)).max(1);
        if limit < needed || processes > MAX_PROCESSES {
            let for_processes =
                RESERVED_FILES + of_executor * size.executors.div_ceil(MAX_PROCESSES);
            let needed = needed.max(for_processes);
            return Err(format!(
                "a storm of {} executors needs {needed} open files in a process, and the limit is \
                 {limit}; raise it with `ulimit -Hn {needed}`, or lower --executors",
                size.executors
            )
            .into());
        }
        Ok(Self {
            processes,
            files: RESERVED_FILES + of_executor * size.executors.div_ceil(processes),
            limit,
        })
    }
}

/// Raises the soft limit of open files, which the brokers and the other processes inherit.
fn raise_open_files() -> Outcome<usize> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let current = maximum;
    setrlimit(Resource::Nofile, Rlimit { current, maximum })?;
    Ok(maximum.map_or(usize::MAX, |files| {
        usize::try_from(files).unwrap_or(usize::MAX)
    }))
}

/// Processes of the executors. An environment belongs to the process of its number modulo their count.
pub(crate) struct ExecutorProcesses(Vec<ExecutorProcess>);

impl ExecutorProcesses {
    /// Starts the processes. Their executors have links to the servers, and their files in `dir`.
    pub(crate) async fn start(
        options: &Options,
        plan: ProcessPlan,
        servers: &[String],
        dir: &Path,
    ) -> Outcome<Self> {
        let mut processes = Vec::new();
        let mut authorities = String::new();
        for number in 0..plan.processes {
            let own_dir = dir.join(format!("process-{number}"));
            fs::create_dir(&own_dir)?;
            processes.push(ExecutorProcess::start(options, servers, &own_dir).await?);
            authorities += &fs::read_to_string(own_dir.join("ca.pem"))?;
        }
        // The orchestrators trust the authority of each process.
        fs::write(dir.join("ca.pem"), authorities)?;
        Ok(Self(processes))
    }

    /// Ends the processes, which ends their daemons.
    pub(crate) async fn stop(&mut self) -> Outcome<()> {
        for process in &mut self.0 {
            process.stop().await?;
        }
        Ok(())
    }

    pub(crate) fn resident_kib(&self) -> Outcome<f64> {
        self.0.iter().map(ExecutorProcess::resident_kib).sum()
    }
}

impl ExecutorCommands for ExecutorProcesses {
    async fn command(&mut self, line: &str) -> Outcome<String> {
        if line == "serving" {
            let answers = self.0.iter_mut().map(|process| process.command(line));
            let mut answers = try_join_all(answers).await?;
            answers.retain(|serving| !serving.is_empty());
            return Ok(answers.join(" "));
        }
        let environment: usize = line
            .split(' ')
            .nth(1)
            .ok_or("a command has an environment")?
            .parse()?;
        let process = environment % self.0.len();
        self.0[process].command(line).await
    }
}

/// Process of the executors.
struct ExecutorProcess {
    child: Child,
    /// `None` once the process was told to end.
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl ExecutorProcess {
    async fn start(options: &Options, servers: &[String], dir: &Path) -> Outcome<Self> {
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

    async fn stop(&mut self) -> Outcome<()> {
        self.stdin = None;
        timeout(ANSWER_TIMEOUT, self.child.wait()).await??;
        Ok(())
    }

    fn resident_kib(&self) -> Outcome<f64> {
        resident_kib(
            &self
                .child
                .id()
                .ok_or("the process of the executors ended")?
                .to_string(),
        )
    }

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

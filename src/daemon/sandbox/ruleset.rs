//! Landlock ruleset: denies all access rights and allows some rights below some paths. The only
//! module that uses the `landlock` crate.

use super::SandboxPolicy;
use super::paths::SandboxPaths;
use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, LandlockStatus,
    NetPort, PathBeneath, PathFd, RestrictionStatus, Ruleset, RulesetAttr as _, RulesetCreated,
    RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope,
};
use rustix::thread::{SecureComputingMode, secure_computing_mode};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// Oldest ABI with all required rights: ABI 1 restricts reading, writing and executing, ABI 3
/// truncation, ABI 4 TCP.
pub const REQUIRED_ABI: u32 = 4;

/// Newest ABI whose rights are restricted if the kernel supports them. ABI 5 adds ioctl(2) of
/// devices, ABI 6 signals and abstract Unix sockets.
const REQUESTED_ABI: ABI = ABI::V6;

/// Restricts the calling thread. Returns the Landlock ABI of the kernel, or the reason why Landlock
/// is not available.
pub fn restrict_thread(
    policy: &SandboxPolicy,
    paths: &SandboxPaths,
    procfs: &[OwnedFd],
) -> Result<u32, String> {
    let ruleset = Ruleset::default();
    // The library has asked the kernel for the ABI, and does not return the error.
    let version_error = io::Error::last_os_error().kind();

    let status = apply_rules(ruleset, policy, paths, procfs)
        .map_err(|error| format!("this kernel rejects Landlock: {error}"))?;

    match status.landlock {
        LandlockStatus::Available {
            effective_abi,
            kernel_abi,
        } if status.ruleset != RulesetStatus::NotEnforced => Ok(kernel_abi
            .and_then(|abi| u32::try_from(abi).ok())
            .unwrap_or_else(|| effective_abi.to_string().parse().unwrap_or_default())),
        LandlockStatus::NotEnabled => Err("Landlock is disabled in this kernel".to_owned()),
        // A kernel without Landlock returns another error: see landlock_create_ruleset(2).
        LandlockStatus::NotImplemented if version_error == ErrorKind::PermissionDenied => {
            Err("a filter of system calls (seccomp) denies Landlock".to_owned())
        }
        LandlockStatus::NotImplemented
            if matches!(secure_computing_mode(), Ok(SecureComputingMode::Filter)) =>
        {
            Err(
                "this kernel has no Landlock, or a filter of system calls (seccomp) hides Landlock"
                    .to_owned(),
            )
        }
        LandlockStatus::NotImplemented | LandlockStatus::Available { .. } => {
            Err("this kernel has no Landlock".to_owned())
        }
    }
}

fn apply_rules(
    ruleset: Ruleset,
    policy: &SandboxPolicy,
    paths: &SandboxPaths,
    procfs: &[OwnedFd],
) -> Result<RestrictionStatus, RulesetError> {
    // A right that the ruleset does not handle is not restricted: landlock(7).
    let all_net = AccessNet::from_all(REQUESTED_ABI);
    let net = if policy.may_bind_tcp {
        all_net & !AccessNet::BindTcp
    } else {
        all_net
    };

    // On an older kernel, only known rights are restricted, and the status reports the rest.
    let mut rules = ruleset
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(REQUESTED_ABI))?
        .handle_access(net)?
        .scope(Scope::from_all(REQUESTED_ABI))?
        .create()?;

    rules = add_path_rules(
        rules,
        &paths.read_dirs,
        AccessFs::ReadFile | AccessFs::ReadDir,
    )?;
    rules = add_path_rules(rules, &paths.files, AccessFs::ReadFile.into())?;

    // The daemon removes its sockets at its end, and makes a socket again if its file was removed.
    rules = add_path_rules(
        rules,
        &paths.socket_dirs,
        AccessFs::RemoveFile | AccessFs::MakeSock,
    )?;
    for file in procfs {
        rules = rules.add_rule(PathBeneath::new(file, AccessFs::ReadFile))?;
    }

    for port in &policy.connect_ports {
        rules = rules.add_rule(NetPort::new(*port, AccessNet::ConnectTcp))?;
    }
    rules.restrict_self()
}

fn add_path_rules<'a>(
    ruleset: RulesetCreated,
    paths: impl IntoIterator<Item = &'a PathBuf>,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    // A path that was removed meanwhile needs no rule.
    let mut opened = paths.into_iter().filter_map(|path| PathFd::new(path).ok());
    opened.try_fold(ruleset, |ruleset, path| {
        ruleset.add_rule(PathBeneath::new(path, access))
    })
}

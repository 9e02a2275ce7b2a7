//! The Landlock ruleset itself: what is handled, and so denied, and where some of it is allowed. The
//! only file that names the library.

use super::paths::SandboxPaths;
use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, LandlockStatus,
    NetPort, PathBeneath, PathFd, Ruleset, RulesetAttr as _, RulesetCreated,
    RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope,
};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// The ABI from which on the kernel can do all that is needed: reading, writing and executing are
/// handled from 1 on, truncating from 3, TCP from 4.
pub(super) const REQUIRED_ABI: u32 = 4;

/// The newest ABI of which rights are asked for where the kernel has them. 5 adds the ioctls of
/// devices, 6 signals and abstract Unix sockets.
const REQUESTED_ABI: ABI = ABI::V6;

/// Builds the walls around the calling thread. Gives the kernel's ABI, 0 where it has no Landlock.
pub(super) fn restrict_thread(
    places: &SandboxPaths,
    held: &[OwnedFd],
    connect: &[u16],
) -> Result<u32, RulesetError> {
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(REQUESTED_ABI))?
        .handle_access(AccessNet::from_all(REQUESTED_ABI))?
        .scope(Scope::from_all(REQUESTED_ABI))?
        .create()?;
    ruleset = add_path_rules(ruleset, &places.read_dirs, AccessFs::ReadFile | AccessFs::ReadDir)?;
    ruleset = add_path_rules(ruleset, &places.files, AccessFs::ReadFile.into())?;
    ruleset = add_path_rules(ruleset, &places.socket_dirs, AccessFs::RemoveFile.into())?;
    for file in held {
        ruleset = ruleset.add_rule(PathBeneath::new(file, AccessFs::ReadFile))?;
    }
    for port in connect {
        ruleset = ruleset.add_rule(NetPort::new(*port, AccessNet::ConnectTcp))?;
    }
    let status = ruleset.restrict_self()?;
    let LandlockStatus::Available { effective_abi, kernel_abi } = status.landlock else {
        return Ok(0);
    };
    if status.ruleset == RulesetStatus::NotEnforced {
        return Ok(0);
    }
    let known = || effective_abi.to_string().parse().unwrap_or_default();
    Ok(kernel_abi.and_then(|abi| u32::try_from(abi).ok()).unwrap_or_else(known))
}

fn add_path_rules<'a>(
    ruleset: RulesetCreated,
    paths: impl IntoIterator<Item = &'a PathBuf>,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    // What has gone since it was looked at needs no rule.
    let mut held = paths.into_iter().filter_map(|path| PathFd::new(path).ok());
    held.try_fold(ruleset, |ruleset, path| ruleset.add_rule(PathBeneath::new(path, access)))
}

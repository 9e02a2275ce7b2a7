//! Mode and status of the daemon's sandbox, as data.

/// Whether the daemon uses Landlock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LandlockMode {
    /// Use all that the kernel supports, and start without Landlock if the kernel has none.
    #[default]
    BestEffort,
    /// Do not start unless the kernel supports all needed restrictions.
    Required,
    /// Do not use Landlock.
    Off,
}

/// Restrictions that Landlock enforces on the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LandlockState {
    /// All needed restrictions: on reading, writing, executing and TCP.
    Enforced,
    /// Some restrictions. The kernel is too old for the others.
    Partial,
    /// No restrictions, because Landlock is switched off.
    #[default]
    Off,
    /// No restrictions, because the kernel does not support Landlock.
    Unavailable,
}

/// Sandbox that the daemon entered when it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SandboxStatus {
    /// Restrictions that Landlock enforces.
    pub landlock: LandlockState,
    /// Landlock ABI version of the kernel. 0 if the kernel has no Landlock or was not asked.
    pub landlock_abi: u32,
    /// Whether `no_new_privs` is set, so that no executed program gains privileges.
    pub no_new_privs: bool,
    /// How many directories the daemon may read below. 0 if reading is not restricted.
    pub readable_dirs: u32,
}

impl LandlockMode {
    /// Names of the modes in the configuration.
    pub const NAMES: [&str; 3] = ["best-effort", "required", "off"];

    /// Parses the name of a mode.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        match text {
            "best-effort" => Ok(Self::BestEffort),
            "required" => Ok(Self::Required),
            "off" => Ok(Self::Off),
            _ => Err("expected best-effort, required or off"),
        }
    }
}

impl LandlockState {
    /// Returns the name of the state.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Enforced => "enforced",
            Self::Partial => "partial",
            Self::Off => "off",
            Self::Unavailable => "unavailable",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::LandlockMode;

    #[test]
    fn all_mode_names_parse() {
        let [best_effort, required, off] = LandlockMode::NAMES.map(LandlockMode::parse);
        assert_eq!(best_effort, Ok(LandlockMode::default()));
        assert_eq!(
            (required, off),
            (Ok(LandlockMode::Required), Ok(LandlockMode::Off))
        );
        for wrong in ["", "Off", "best_effort", "true"] {
            assert!(LandlockMode::parse(wrong).is_err(), "{wrong}");
        }
    }
}

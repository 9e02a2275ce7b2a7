//! What the daemon denies itself, as data. Leaves doing it to the room `sandbox`.

/// What is asked of the kernel's Landlock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LandlockMode {
    /// As much as the kernel can do, and on without it.
    #[default]
    BestEffort,
    /// All that is needed, or no start.
    Required,
    /// Nothing.
    Off,
}

/// What Landlock holds the daemon to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LandlockState {
    /// All that is needed: what is read, written, executed and reached by TCP.
    Enforced,
    /// Less than that; the kernel is too old for the rest.
    Partial,
    /// Nothing; nobody asked for it.
    #[default]
    Off,
    /// Nothing; the kernel cannot.
    Unavailable,
}

/// What the daemon denied itself when it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SandboxStatus {
    /// What Landlock does.
    pub landlock: LandlockState,
    /// The kernel's Landlock ABI; 0 where it has none or was not asked.
    pub landlock_abi: u32,
    /// Whether nothing that the daemon would execute could gain privileges.
    pub no_new_privs: bool,
    /// Directories below which may be read; 0 where nothing keeps it to them.
    pub readable_dirs: u32,
}

impl LandlockMode {
    /// As they are written.
    pub const NAMES: [&str; 3] = ["best-effort", "required", "off"];

    /// Reads the name of one.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        match text {
            "best-effort" => Ok(Self::BestEffort),
            "required" => Ok(Self::Required),
            "off" => Ok(Self::Off),
            _ => Err("is none of best-effort, required, off"),
        }
    }
}

impl LandlockState {
    /// One word for it.
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
    fn names() {
        let [best_effort, required, off] = LandlockMode::NAMES.map(LandlockMode::parse);
        assert_eq!(best_effort, Ok(LandlockMode::default()));
        assert_eq!((required, off), (Ok(LandlockMode::Required), Ok(LandlockMode::Off)));
        for wrong in ["", "Off", "best_effort", "true"] {
            assert!(LandlockMode::parse(wrong).is_err(), "{wrong}");
        }
    }
}

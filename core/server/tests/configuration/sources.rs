use std::ffi::OsString;
use std::io::ErrorKind;

use xmtp_server::config::{Refusal, Source, SourceError};

use crate::SECRET;

#[test]
fn arc_100_no_source_is_a_usage_error() {
    for variable in [None, Some(OsString::new())] {
        let error = Source::select(None, variable, None).expect_err("no source");
        assert_eq!(error, SourceError::Missing);
        for name in ["--config", "XMTP_CONFIG", "--config-file"] {
            assert!(error.to_string().contains(name));
        }
    }
}

#[test]
fn arc_100_the_flag_beats_the_variable() {
    let source = Source::select(Some("flag".to_owned()), Some("variable".into()), None);
    assert_eq!(source, Ok(Source::Inline("flag".to_owned())));
    let source = Source::select(None, Some("variable".into()), None);
    assert_eq!(source, Ok(Source::Inline("variable".to_owned())));
}

#[test]
fn arc_100_an_inline_document_conflicts_with_a_file() {
    let file = || Some("file.toml".into());
    let flag = Source::select(Some(SECRET.to_owned()), None, file()).expect_err("two sources");
    assert_eq!(flag, SourceError::Conflict("--config"));
    let variable = Source::select(None, Some(SECRET.into()), file()).expect_err("two sources");
    assert_eq!(variable, SourceError::Conflict("XMTP_CONFIG"));
    assert!(variable.to_string().contains("--config-file"));

    let source = Source::select(None, Some(OsString::new()), file());
    assert_eq!(source, Ok(Source::File("file.toml".into())));
}

#[cfg(unix)]
#[test]
fn arc_100_a_variable_that_is_not_unicode_is_there_all_the_same() {
    use std::os::unix::ffi::OsStringExt;
    let variable = || Some(OsString::from_vec(b"x = 1 # \xff".to_vec()));
    let alone = Source::select(None, variable(), None);
    assert_eq!(alone, Err(SourceError::Unicode));
    let with_file = Source::select(None, variable(), Some("file.toml".into()));
    assert_eq!(with_file, Err(SourceError::Conflict("XMTP_CONFIG")));
    let beaten = Source::select(Some("flag".to_owned()), variable(), None);
    assert_eq!(beaten, Ok(Source::Inline("flag".to_owned())));
}

#[test]
fn arc_101_debug_of_an_inline_source_shows_no_text() {
    assert!(!format!("{:?}", Source::Inline(SECRET.to_owned())).contains(SECRET));
}

#[test]
fn arc_100_a_file_is_read_or_refused_by_path_and_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    let (good, binary) = (
        folder.path().join("good.toml"),
        folder.path().join("binary.toml"),
    );
    std::fs::write(&good, "x = 1").expect("a file");
    std::fs::write(&binary, [SECRET.as_bytes(), &[0xFF]].concat()).expect("a file");
    let long = folder.path().join("long.toml");
    std::fs::write(&long, vec![b'\n'; (1 << 20) + 1]).expect("a file");
    assert_eq!(Source::File(good).read().as_deref(), Ok("x = 1"));

    for (path, kind) in [
        (binary, ErrorKind::InvalidData),
        (folder.path().join("missing.toml"), ErrorKind::NotFound),
        (long, ErrorKind::FileTooLarge),
    ] {
        let errors = Source::File(path.clone()).read().expect_err("unreadable");
        let error = errors.iter().next().expect("one error");
        assert_eq!(
            error.refusal,
            Refusal::Unreadable {
                path: path.clone(),
                kind
            }
        );
        assert!(errors.to_string().contains(&path.display().to_string()));
        assert!(!errors.to_string().contains(SECRET));
    }
}

#[cfg(unix)]
#[test]
fn arc_100_what_does_not_end_is_refused() {
    let errors = Source::File("/dev/zero".into()).read();
    let errors = errors.expect_err("unreadable");
    let refusal = Refusal::Unreadable {
        path: "/dev/zero".into(),
        kind: ErrorKind::FileTooLarge,
    };
    assert_eq!(errors.iter().next().expect("one error").refusal, refusal);
    // A pipe that nobody writes.
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo runs").success());
    let errors = Source::File(pipe).read().expect_err("unreadable");
    assert!(errors.to_string().ends_with("timed out"), "{errors}");
}

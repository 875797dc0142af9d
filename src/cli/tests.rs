use std::{
    cell::RefCell,
    ffi::OsString,
    io::{self, Cursor, Write},
    rc::Rc,
};

use clap::CommandFactory;

use super::{args::Cli, error::CliError, kueue, print::Printer};

#[derive(Clone, Default)]
struct Screen(Rc<RefCell<Vec<u8>>>);

impl Write for Screen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Screen {
    fn text(&self) -> String {
        String::from_utf8(self.0.borrow().clone()).expect("text")
    }
}

fn printer(answers: Option<&'static str>) -> (Printer, Screen, Screen) {
    let (out, err) = (Screen::default(), Screen::default());
    let input = answers.map(|answers| Box::new(Cursor::new(answers)) as Box<dyn io::BufRead>);
    (Printer::captured(Box::new(out.clone()), Box::new(err.clone()), input), out, err)
}

#[test]
fn the_definition_of_the_command_line_is_sound() {
    Cli::command().debug_assert();
}

/// What `fedq kueue` gets of a line, or why it gets nothing.
fn handed_on(line: &str) -> Result<Vec<OsString>, String> {
    let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
    let (own, rest) = kueue::split(&words).ok_or("it is another command")?;
    let matches = Cli::command().try_get_matches_from(own).map_err(|error| error.to_string())?;
    kueue::check(&matches, rest).map_err(|error| format!("{error}: {}", error.next().unwrap_or_default()))?;
    Ok(rest.to_vec())
}

#[test]
fn what_follows_kueue_is_handed_on_as_it_is_and_no_server_of_fedqd_before_it() {
    let rest = ["--server", "https://c", "list", "cq", "--token", "t", "--color", "x"].map(OsString::from);
    for before in ["fedq", "fedq --color never", "fedq --color=never"] {
        assert_eq!(
            handed_on(&format!("{before} kueue --server https://c list cq --token t --color x")),
            Ok(rest.to_vec())
        );
    }
    for flag in ["server", "token", "ca-file", "ca", "config"] {
        for line in [format!("fedq --color never --{flag} x kueue list cq"), format!("fedq --{flag}=x kueue")]
        {
            let said = handed_on(&line).expect_err("refused");
            assert!(said.contains(&format!("--{flag} before `kueue`")), "{said}");
            assert!(said.contains("put it after `kueue`"), "{said}");
        }
    }
    for flag in ["--cluster=a", "--all-clusters", "--hub"] {
        let rest = ["list", "cq", flag].map(OsString::from).to_vec();
        assert_eq!(handed_on(&format!("fedq --server https://f kueue list cq {flag}")), Ok(rest));
    }
    for line in ["fedq --server kueue cluster list", "fedq check kueue", "fedq -x kueue", "fedq"] {
        assert_eq!(handed_on(line), Err("it is another command".to_owned()), "{line}");
    }
}

#[test]
fn only_a_person_is_asked() {
    let (mut person, _, err) = printer(Some("y\nno \n"));
    assert_eq!(person.ask("Apply?").as_deref(), Some("y"));
    assert_eq!(person.ask("Apply?").as_deref(), Some("no"));
    assert_eq!(person.ask("Apply?"), None, "the input has ended");
    assert_eq!(err.text(), "Apply? Apply? Apply? ");
    let (mut program, _, err) = printer(None);
    assert_eq!(program.ask("Apply?"), None);
    assert_eq!(err.text(), "");
}

#[test]
fn data_and_remarks_do_not_mix_and_neither_steers_the_terminal() {
    let (mut printer, out, err) = printer(None);
    printer.line("a\u{1b}[2J").expect("printed");
    printer.note("b\u{7}");
    printer.error(&CliError::NoServer);
    assert_eq!(out.text(), "a\\u{1b}[2J\n");
    assert!(
        err.text().starts_with("b\\u{7}\nerror: no server is configured\nnext: fedq login"),
        "{}",
        err.text()
    );
}

//! Prerequisites of a call.

use super::*;
use crate::http::peer::saying;

const HTTPS: &str = "base_url: https://a.example";

async fn refused(providers: &Providers, model: &ResolvedModel, project: &ProjectEnv) -> String {
    let error = enter(providers, model, project).await.unwrap_err();
    rye_core::error::with_sources(&error)
}

#[tokio::test]
async fn missing_secret_is_reported_with_fix() {
    let (_clock, providers) = providers_with(&[("KEY", "")]);
    let project = ProjectEnv::new("/p", [("OTHER".to_owned(), "x".to_owned())]);
    let error = refused(&providers, &model_of(Owner::User, HTTPS), &project).await;
    assert!(
        error.contains("`p` needs the secret KEY") && error.contains("rye/secrets"),
        "{error}"
    );
    let error = refused(&providers, &model_of(Owner::Project, HTTPS), &project).await;
    assert!(error.contains("`.env` of the project"), "{error}");
    assert!(!providers.has_secret(Owner::User, "KEY", &project));
    assert!(providers.has_secret(Owner::Project, "OTHER", &project));
    assert!(!providers.has_secret(Owner::User, "OTHER", &project));
}

#[tokio::test]
async fn refused_secret_is_reported() {
    let (_clock, providers) = providers_with(&[("KEY", "k3y\n")]);
    let project = ProjectEnv::default();
    let error = refused(&providers, &model_of(Owner::User, HTTPS), &project).await;
    assert!(
        error.contains("the secret KEY is refused") && !error.contains("k3y"),
        "{error}"
    );
    assert!(providers.has_secret(Owner::User, "KEY", &project));
}

#[tokio::test]
async fn invalid_address_is_reported() {
    let project = ProjectEnv::default();
    for (variables, keys, told) in [
        (&[][..], "base_url: {env: BASE}", "`BASE` is not set"),
        (
            &[("BASE", "http://a.example")],
            "base_url: {env: BASE}",
            "plain HTTP",
        ),
    ] {
        let (_clock, providers) = providers_with(variables);
        let error = refused(&providers, &model_of(Owner::User, keys), &project).await;
        assert!(error.contains(told), "{error}");
    }
}

/// Head of the request for a model with these keys; `BASE` in them stands for the address.
async fn head_of(
    owner: Owner,
    keys: &str,
    daemon: &[(&str, &str)],
    project: &[(&str, &str)],
) -> String {
    let (address, mut tasks) = saying("").await;
    let base = format!("http://{address}/base/");
    let (mut daemon, mut project) = (daemon.to_vec(), project.to_vec());
    match owner {
        Owner::User => daemon.push(("BASE", &base)),
        Owner::Project => project.push(("BASE", &base)),
    }
    let (_clock, providers) = providers_with(&daemon);
    let project = project
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let project = ProjectEnv::new("/p", project);
    let model = model_of(owner, &format!("base_url: {{env: BASE}}\n{keys}"));
    let place = enter(&providers, &model, &project).await.unwrap();
    failure(&mut place.call(&model, &errors(), 1, BODY.to_owned())).await;
    tasks.next().await.unwrap()
}

const KEYS: &str = "headers: {x-version: \"7\", x-org: {env: ORG}}\nauth: [{header: x-one, secret: ONE}, {header: authorization, prefix: \"Bearer \", secret: TWO}]";

#[tokio::test]
async fn call_uses_first_available_secret() {
    let head = head_of(Owner::User, KEYS, &[("TWO", "2"), ("ORG", "o")], &[]).await;
    assert!(
        head.starts_with("POST /base/v1/messages HTTP/1.1\r\n"),
        "{head}"
    );
    for line in ["x-version: 7", "x-org: o", "authorization: Bearer 2"] {
        assert!(head.lines().any(|found| found == line), "{line}: {head}");
    }
    let head = head_of(Owner::User, KEYS, &[("TWO", "2"), ("ONE", "1")], &[]).await;
    assert!(head.contains("x-one: 1\r\n"), "{head}");
    for absent in ["authorization", "x-org"] {
        assert!(!head.contains(absent), "{head}");
    }
}

#[tokio::test]
async fn project_provider_gets_no_daemon_secrets() {
    let daemon = [("ONE", "d"), ("ORG", "d")];
    let head = head_of(Owner::Project, KEYS, &daemon, &[("TWO", "2")]).await;
    assert!(head.contains("authorization: Bearer 2\r\n"), "{head}");
    for absent in ["x-one", "x-org"] {
        assert!(!head.contains(absent), "{head}");
    }
    let head = head_of(
        Owner::User,
        KEYS,
        &[("TWO", "2")],
        &[("ONE", "p"), ("ORG", "p")],
    )
    .await;
    for absent in ["x-one", "x-org"] {
        assert!(!head.contains(absent), "{head}");
    }
}

#[tokio::test]
async fn networks_limit_provider_files_of_projects_only() {
    let project = ProjectEnv::new("/p", [("KEY".to_owned(), "k3y".to_owned())]);
    for (owner, is_called) in [(Owner::User, true), (Owner::Project, false)] {
        let (address, mut tasks) = saying("HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n").await;
        let (_clock, providers) = providers_reaching(Networks::Public, &[("KEY", "k3y")]);
        let model = model_of(owner, &format!("base_url: http://{address}"));
        let permit = enter(&providers, &model, &project).await.unwrap();
        let mut call = permit.call(&model, &errors(), 1, BODY.to_owned());
        let failure = failure(&mut call).await;
        let Trouble::Met(text) = &failure.trouble else {
            assert!(is_called, "{failure:?}");
            assert!(tasks.next().await.is_some());
            continue;
        };
        assert!(
            !is_called && text.contains("`http.networks: public`"),
            "{text}"
        );
        assert_eq!(failure.verdict.charge, Charge::Nothing);
    }
}

#[tokio::test]
async fn provider_without_secret_gets_none() {
    let head = head_of(Owner::User, "auth: []", &[("KEY", "k3y")], &[]).await;
    assert!(!head.contains("k3y"), "{head}");
}

#[test]
fn names_of_all_secrets_are_listed() {
    let one = model_of(Owner::User, HTTPS);
    let two = model_of(Owner::User, &format!("{HTTPS}\n{KEYS}"));
    let names: Vec<String> = names([&one.endpoint, &two.endpoint]).into_iter().collect();
    assert_eq!(names, ["KEY", "ONE", "TWO"]);
}

"""How each listener of a node authenticates its clients, made from the configuration."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Final, Protocol

from raylog.config.authentication import (
    LOCAL_PRINCIPAL_MAPPING,
    PRINCIPAL_BUILDER_CLASS,
    PRINCIPAL_BUILDERS,
    SASL_SERVER_CALLBACK_HANDLER_CLASS,
    SaslMechanismSettings,
    principal_builder,
    sasl_mechanisms,
)
from raylog.config.client import https_settings
from raylog.config.oauthbearer import JWKS_ENDPOINT_URL, SIGNED_TOKENS, UNSECURED_TOKENS
from raylog.config.tls import TlsSettings, tls_settings
from raylog.core.errors import ConfigError
from raylog.core.password import Password
from raylog.security.authenticator import Authenticator, NoSasl
from raylog.security.delegation_tokens import DelegationToken, TokenKey
from raylog.security.distinguished_name import MappingRules, distinguished_name
from raylog.security.local_users import LocalUsers
from raylog.security.operator_function import find_function
from raylog.security.principal import ANONYMOUS, Principal
from raylog.security.principal_builder import AuthenticationContext, PrincipalBuilder, build_principal
from raylog.security.sasl.gssapi import GSSAPI, GssapiServer
from raylog.security.sasl.jaas import parse_jaas
from raylog.security.sasl.json_web_tokens import TokenRules
from raylog.security.sasl.kerberos import Acceptor, check_package, service_of
from raylog.security.sasl.kerberos_names import ShortNames
from raylog.security.sasl.mechanism import Identity, SaslServer, authentication_failed
from raylog.security.sasl.oauthbearer import OAUTHBEARER, OAuthBearerServer, TokenValidator
from raylog.security.sasl.plain import PLAIN, CheckPassword, PlainServer
from raylog.security.sasl.scram import (
    NONCE_BYTES,
    PendingUser,
    ScramCredential,
    ScramMechanism,
    ScramServer,
    ScramUser,
)
from raylog.security.sasl.server import OfferedMechanism, SaslAuthenticator
from raylog.security.sasl.token_logins import TokenLogins
from raylog.security.sasl.token_validators import SignedTokens, UnsecuredTokens, unsecured_rules
from raylog.security.security_protocol import SecurityProtocol
from raylog.security.tls import client_context
from raylog.transport.endpoints import HANDLE_PEER, UNIX_PEER
from raylog.transport.listeners import plan_controller_listeners, plan_listeners
from raylog.transport.node import Job, JobKind
from raylog.transport.token_keys import TokenKeys

if TYPE_CHECKING:
    from raylog.core.clock import Now
    from raylog.core.config import Configs
    from raylog.transport.endpoints import Listener

log = logging.getLogger("raylog.broker")
_PLAIN_USER_PREFIX: Final = "user_"


def check_authentication(configs: Configs) -> None:
    """Raises ConfigError if a listener could not be opened, or could not authenticate its clients."""
    LocalUsers(configs[LOCAL_PRINCIPAL_MAPPING])
    for listener in plan_listeners(configs):
        check_listener(listener, configs)
    check_controller_authentication(configs)


def check_controller_authentication(configs: Configs) -> None:
    """The same for the listeners of a controller."""
    for listener in plan_controller_listeners(configs):
        check_listener(listener, configs)


def check_listener(listener: Listener, configs: Configs, *, reads_keytabs: bool = False) -> None:
    """Raises ConfigError if a listener could not authenticate its clients. Reading keytabs may block."""
    MappingRules(tls_settings(configs.for_listener(listener.name)).mapping_rules)
    if listener.security.by_sasl:
        for settings in sasl_mechanisms(configs, listener.name):
            if settings.name == PLAIN:
                plain_users(listener.name, settings)
            elif settings.name == OAUTHBEARER:
                token_rules(listener.name, settings)
                if settings.by_signed_tokens and (tls := token_tls(listener.name, settings)) is not None:
                    client_context(tls, check_host_name=True)
            elif settings.name == GSSAPI:
                service = kerberos_service(listener.name, settings)
                if reads_keytabs:
                    Acceptor(*service)
    if not listener.internal:
        custom_builder(listener.name, configs)


class Credentials(Protocol):
    """What clients can log in with, as the metadata have it."""

    @property
    def scram_credentials(self) -> Mapping[tuple[str, ScramMechanism], ScramCredential]: ...

    @property
    def delegation_tokens(self) -> Mapping[str, DelegationToken]: ...


class ClientAuthentication:
    """The SASL mechanisms of all client listeners."""

    def __init__(
        self,
        configs: Configs,
        listeners: Sequence[Listener],
        *,
        credentials: Callable[[], Credentials],
        new_nonce: Callable[[int], bytes],
        cluster_secret: bytes,
        token_key: TokenKey | None,
        clock: Callable[[], Now],
        add_job: Callable[[Job], None],
    ) -> None:
        """`listeners` are those of the node, `token_key` is the one of delegation tokens; None if they are disabled.

        Raises ConfigError.
        """
        self._credentials = credentials
        self._rules = {
            listener.name: MappingRules(tls_settings(configs.for_listener(listener.name)).mapping_rules)
            for listener in listeners
        }
        builders = {
            listener.name: custom_builder(listener.name, configs) for listener in listeners if not listener.internal
        }
        self._builders = {name: builder for name, builder in builders.items() if builder is not None}
        self._new_nonce = new_nonce
        self._clock = clock
        self.token_keys = TokenKeys(clock, add_job)
        self._decoy_key = hmac.digest(cluster_secret, b"salts of unknown users", "sha256")
        self._token_logins = None if token_key is None else TokenLogins(token_key, salt_key=self._decoy_key)
        self._add_job = add_job
        self._listeners = [listener for listener in listeners if listener.security.by_sasl]
        self._settings = _settings_by_mechanism(self._listeners, configs)
        """Those that each mechanism of a listener was made from, or is being made from."""
        self._offered: dict[str, dict[str, OfferedMechanism]] = {listener.name: {} for listener in self._listeners}
        for (listener, name), settings in self._settings.items():
            self._offered[listener.name][name] = self._offer(listener, settings)
        self._changes = 0

    @property
    def changing(self) -> bool:
        """Whether new settings are not in use yet."""
        return self._changes > 0

    def configs_changed(self, configs: Configs) -> None:
        """Use new JAAS configurations from the next exchange on. Invalid ones are logged and not used."""
        before, self._settings = self._settings, _settings_by_mechanism(self._listeners, configs)
        changed = {
            place: settings
            for place, settings in self._settings.items()
            if settings != before[place] and not settings.by_signed_tokens
        }
        if not changed:
            return
        made: dict[tuple[Listener, str], OfferedMechanism | ConfigError] = {}

        def run() -> None:  # it may read a keytab
            for place, settings in changed.items():
                try:
                    made[place] = self._offer(place[0], settings)
                except ConfigError as error:
                    made[place] = error

        def done(_: object) -> None:
            self._changes -= 1
            for (listener, name), offered in made.items():
                if self._settings[listener, name] != changed[listener, name]:
                    continue  # it has changed again meanwhile
                about = {"listener": listener.name, "mechanism": name}
                if isinstance(offered, ConfigError):
                    log.error("SASL settings not changed", extra={**about, "reason": offered.message})
                else:
                    self._offered[listener.name][name] = offered
                    log.info("SASL settings changed", extra=about)

        self._changes += 1
        self._add_job(Job(run, done, JobKind.CHECK_KEYS))

    def new_authenticator(self, listener: Listener, peer_host: str) -> Authenticator:
        """For one connection of a client."""
        if listener.security.by_sasl:
            return self._sasl_authenticator(listener, peer_host)
        if listener.security.by_tls and not peer_host.startswith(UNIX_PEER):
            return NoSasl(None)
        return NoSasl(None) if self.builds_principals(listener, peer_host) else NoSasl()

    def identifies(self, listener: Listener, peer_host: str) -> bool:
        """Whether the principal of a new connection is to be built at once, since it has neither TLS nor SASL."""
        return listener.security is SecurityProtocol.PLAINTEXT and self.builds_principals(listener, peer_host)

    def _sasl_authenticator(self, listener: Listener, peer_host: str) -> SaslAuthenticator:
        builder = self._builders.get(listener.name)
        if builder is None:
            return SaslAuthenticator(self._offered[listener.name])

        def build(mechanism: str, authorization_id: str, certificate: bytes | None) -> Principal:
            context = AuthenticationContext(
                listener.name, listener.security.value, peer_host, certificate, mechanism, authorization_id
            )
            return build_principal(builder, context)

        return SaslAuthenticator(self._offered[listener.name], build)

    def builds_principals(self, listener: Listener, peer_host: str) -> bool:
        """Whether a principal builder determines the principals of such clients."""
        return listener.name in self._builders and not (peer_host.startswith(UNIX_PEER) or peer_host == HANDLE_PEER)

    def principal_without_sasl(
        self, listener: Listener, peer_host: str, certificate: bytes | None
    ) -> Principal | Callable[[], Principal]:
        """Whom a client and its certificate, in DER format, stand for, or the function that builds the principal.

        Raises KafkaError(SASL_AUTHENTICATION_FAILED).
        """
        if self.builds_principals(listener, peer_host):
            context = AuthenticationContext(listener.name, listener.security.value, peer_host, certificate)
            return partial(build_principal, self._builders[listener.name], context)
        if certificate is None:
            return ANONYMOUS
        try:
            subject = distinguished_name(certificate)
        except ValueError as error:
            raise authentication_failed(f"the certificate cannot be read: {error}") from None
        name = self._rules[listener.name].name_of(subject)
        if not name:
            raise authentication_failed(f"no rule of ssl.principal.mapping.rules matches {subject!r}")
        return Principal("User", name)

    def _offer(self, listener: Listener, settings: SaslMechanismSettings) -> OfferedMechanism:
        """Raises ConfigError."""
        return OfferedMechanism(self._exchanges(listener, settings), settings.session_ms_max)

    def _exchanges(self, listener: Listener, settings: SaslMechanismSettings) -> Callable[[], SaslServer]:
        """Raises ConfigError."""
        if settings.name == PLAIN:
            users, check = plain_users(listener.name, settings)
            return lambda: PlainServer(users, check)
        if settings.name == OAUTHBEARER:
            validator = self._token_validator(listener, settings)
            return lambda: OAuthBearerServer(validator)
        if settings.name == GSSAPI:
            acceptor = Acceptor(*kerberos_service(listener.name, settings))
            names = ShortNames(settings.kerberos.rules, default_realm=acceptor.default_realm)
            return lambda: GssapiServer(acceptor.new_context, names)
        mechanism = ScramMechanism.named(settings.name)
        find = partial(self._scram_user, mechanism)
        return lambda: ScramServer(mechanism, find, nonce=self._new_nonce(NONCE_BYTES), decoy_key=self._decoy_key)

    def _token_validator(self, listener: Listener, settings: SaslMechanismSettings) -> TokenValidator:
        """Raises ConfigError."""
        rules = token_rules(listener.name, settings)
        if settings.callback == UNSECURED_TOKENS:
            return UnsecuredTokens(rules, self._clock)
        place = listener, settings.name
        cache = self.token_keys.add(settings.tokens, lambda: token_tls(listener.name, self._settings[place]))
        return SignedTokens(cache, rules, self._clock)

    def _scram_user(self, mechanism: ScramMechanism, name: str, is_token: bool) -> ScramUser | PendingUser | None:
        if is_token:
            token = self._credentials().delegation_tokens.get(name)
            logins = self._token_logins
            return None if logins is None else logins.user(mechanism, token, now_ms=self._clock().wall_ms)
        credential = self._credentials().scram_credentials.get((name, mechanism))
        return None if credential is None else ScramUser(credential, Identity(Principal("User", name)))


def _settings_by_mechanism(
    listeners: Iterable[Listener], configs: Configs
) -> dict[tuple[Listener, str], SaslMechanismSettings]:
    return {
        (listener, settings.name): settings
        for listener in listeners
        for settings in sasl_mechanisms(configs, listener.name)
    }


def plain_users(listener: str, settings: SaslMechanismSettings) -> tuple[dict[str, Password], CheckPassword | None]:
    """The users of PLAIN with their passwords, or the function that knows them. Raises ConfigError."""
    prefix = f"listener.name.{listener.lower()}.{PLAIN.lower()}."
    if settings.callback:
        return {}, find_function(f"{prefix}{SASL_SERVER_CALLBACK_HANDLER_CLASS.name}", settings.callback)
    if settings.jaas is None:
        raise ConfigError(f"{prefix}sasl.jaas.config: must be set, since sasl.enabled.mechanisms contains {PLAIN}")
    users = {
        name.removeprefix(_PLAIN_USER_PREFIX): Password(password)
        for name, password in _jaas_options(prefix, settings.jaas).items()
        if name.startswith(_PLAIN_USER_PREFIX)
    }
    if not users or not all(user and password.reveal() for user, password in users.items()):
        raise ConfigError(
            f'{prefix}sasl.jaas.config: must contain at least one user_<name>="<password>", none of it empty'
        )
    return users, None


def token_rules(listener: str, settings: SaslMechanismSettings) -> TokenRules:
    """The rules for tokens of OAUTHBEARER. Raises ConfigError."""
    prefix = f"listener.name.{listener.lower()}.{OAUTHBEARER.lower()}."
    tokens = settings.tokens
    if settings.callback == UNSECURED_TOKENS:
        options = {} if settings.jaas is None else _jaas_options(prefix, settings.jaas)
        try:
            return unsecured_rules(options)
        except ConfigError as error:
            raise ConfigError(f"{prefix}{error.message}") from None
    if settings.callback not in ("", *SIGNED_TOKENS):
        raise ConfigError(
            f"{prefix}{SASL_SERVER_CALLBACK_HANDLER_CLASS.name}={settings.callback!r}: must be {SIGNED_TOKENS[0]}"
            f" or {UNSECURED_TOKENS}"
        )
    if not tokens.keys_url:
        raise ConfigError(
            f"{prefix}{JWKS_ENDPOINT_URL.name}: must be set, since sasl.enabled.mechanisms contains {OAUTHBEARER}"
        )
    return TokenRules(
        audiences=tokens.audiences,
        issuer=tokens.issuer,
        clock_skew_ms=tokens.clock_skew_ms,
        scope_claim=tokens.scope_claim,
        subject_claim=tokens.subject_claim,
    )


def token_tls(listener: str, settings: SaslMechanismSettings) -> TlsSettings | None:
    """For getting the keys of signed tokens by https:; None without settings of its own. Raises ConfigError."""
    if settings.jaas is None:
        return None
    prefix = f"listener.name.{listener.lower()}.{OAUTHBEARER.lower()}."
    options = _jaas_options(prefix, settings.jaas)
    try:
        return https_settings(options)
    except ConfigError as error:
        raise ConfigError(f"{prefix}sasl.jaas.config: {error.message}") from None


def kerberos_service(listener: str, settings: SaslMechanismSettings) -> tuple[str, str]:
    """The principal of the broker, and its keytab. Raises ConfigError."""
    prefix = f"listener.name.{listener.lower()}.{GSSAPI.lower()}."
    check_package()
    ShortNames(settings.kerberos.rules, default_realm="")
    if settings.jaas is None:
        raise ConfigError(f"{prefix}sasl.jaas.config: must be set, since sasl.enabled.mechanisms contains {GSSAPI}")
    try:
        return service_of(parse_jaas(settings.jaas.reveal()), settings.kerberos.service_name)
    except ConfigError as error:
        raise ConfigError(f"{prefix}{error.message}") from None


def _jaas_options(prefix: str, jaas: Password) -> Mapping[str, str]:
    try:
        return parse_jaas(jaas.reveal()).options
    except ConfigError as error:
        raise ConfigError(f"{prefix}{error.message}") from None


def custom_builder(listener: str, configs: Configs) -> PrincipalBuilder | None:
    """The function that determines the principals of a listener; None for Kafka's default. Raises ConfigError."""
    path = principal_builder(configs, listener)
    if path is None:
        return None
    key = PRINCIPAL_BUILDER_CLASS.name
    if ":" not in path:
        found = {each.value for each in entry_points(group=PRINCIPAL_BUILDERS, name=path)}
        if len(found) != 1:
            raise ConfigError(
                f"{key}={path!r}: {len(found)} entry points of installed packages have this name in the group"
                f" {PRINCIPAL_BUILDERS}; must be one"
            )
        (path,) = found
    builder: PrincipalBuilder = find_function(key, path)
    return builder

"""The configuration in force: dynamic values from the metadata log above the static configuration of a node."""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import Final

from raylog.config.table import with_dynamic_configs
from raylog.core.config import Configs
from raylog.core.ids import NO_BROKER_ID, BrokerId
from raylog.metadata.image import MetadataImage
from raylog.security.password_cipher import PasswordCipher, UnreadablePassword

log = logging.getLogger("raylog.metadata")
ALL_BROKERS: Final = NO_BROKER_ID
"""In place of a broker id: the defaults that apply to brokers without a value of their own."""


def effective_configs(
    image: MetadataImage, static: Configs, broker_id: BrokerId, *, cipher: PasswordCipher | None = None
) -> Configs:
    """A broker's configuration: its own dynamic values, then those of all brokers, then its static configuration.

    Passwords are contained if there is a cipher to decrypt them.
    """
    return with_dynamic_configs(
        static,
        cluster=dynamic_texts(image, ALL_BROKERS, cipher=cipher),
        broker=dynamic_texts(image, broker_id, cipher=cipher),
    )


def dynamic_texts(image: MetadataImage, broker_id: BrokerId, *, cipher: PasswordCipher | None) -> dict[str, str]:
    """What was set for one broker or for ALL_BROKERS, decrypted. What cannot be decrypted is left out and logged."""
    texts = dict(image.broker_configs.get(broker_id, {}))
    if cipher is not None:
        for name, encrypted in image.broker_passwords.get(broker_id, {}).items():
            try:
                texts[name] = cipher.decrypt(encrypted, broker_id=broker_id, key=name).reveal()
            except UnreadablePassword as error:
                _report_unreadable(name, encrypted, str(error))
    return texts


@lru_cache(maxsize=1000)
def _report_unreadable(key: str, encrypted: bytes, reason: str) -> None:
    """Once for each value: a broker reads its configuration again at every change."""
    log.error("stored password unreadable", extra={"key": key, "reason": reason})

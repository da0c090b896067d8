"""Who asks: a bearer key, known by its hash alone."""

from __future__ import annotations

import hashlib
from typing import Annotated

from fastapi import Depends, HTTPException, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

_bearer = HTTPBearer(auto_error=False)


def owner(
    request: Request, given: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> str:
    """The owner of the key; 401 without a known one."""
    hashed = hashlib.sha256(given.credentials.encode()).hexdigest() if given else ""
    name: str | None = request.app.state.config.keys.get(hashed)
    if name is None:
        raise HTTPException(401, "a known key is needed", {"www-authenticate": "Bearer"})
    return name


Owner = Annotated[str, Depends(owner)]


def editor(request: Request, name: Owner) -> str:
    """An owner who may change the shelf; 403 for others."""
    if name not in request.app.state.config.editors:
        raise HTTPException(403, "only editors may change the shelf")
    return name


Editor = Annotated[str, Depends(editor)]

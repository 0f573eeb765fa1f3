"""The front door: an nginx configuration that lets sites reach the fleet paths of the SuperLink and nothing
else.

Flower's SuperLink serves three things on one port: the fleet interface that sites need, and beside it a
control and a runtime interface without any login, with which anyone could run programs on the server and
on every site. So the SuperLink listens on loopback only, and nginx passes on exactly the requests listed
here, compared as they were received: method and undecoded path together. Everything else gets 404. (Not
403: Flower takes that to mean that its run has ended, and waits for ever.)
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from fedpurin.errors import EngineError
from fedpurin.federation.keys import ServerKeys

# register-node and unregister-node are left out: only nodes without a registered key use them.
FLEET_CALLS = (
    "activate-node",
    "deactivate-node",
    "send-node-heartbeat",
    "pull-messages",
    "push-messages",
    "get-run",
    "get-fab",
    "pull-object",
    "push-object",
    "confirm-message-received",
)
ENVELOPE_BYTES = 1 << 20  # header, metrics and what Flower puts around a message, with much to spare


def largest_message_mb(exchanged: int) -> int:
    """What the largest message of a model may need: all values as float32, and a mask of all of them."""
    return -(-(4 * exchanged + -(-exchanged // 8) + ENVELOPE_BYTES) // (1 << 20))


@dataclass(frozen=True)
class FrontDoor:
    """Where nginx listens, where it passes requests on to, and its limits."""

    keys: ServerKeys
    listen: str  # address:port
    superlink: str  # host:port, or unix:PATH
    folder: Path  # temporary files and logs of nginx
    max_body_mb: int  # has to exceed the largest message, or rounds hang
    header_seconds: int = 10  # for the whole head of a request: whoever holds it back is hung up on
    body_seconds: int = 30  # between two pieces of a body

    def config(self) -> str:
        """The text of nginx.conf."""
        # A regular expression, since plain strings in a map are compared without regard to case.
        allowed = f'        "~^POST /v1/fleet/({"|".join(FLEET_CALLS)})$" 1;'
        keys, folder = self.keys.folder.resolve(), self.folder.resolve()
        # Started by root, nginx would serve as another account, which may not open the SuperLink's socket.
        user = "user root;\n" if os.geteuid() == 0 else ""
        temporary = "\n".join(
            f'    {kind}_temp_path "{folder}/tmp-{kind}";'
            for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        return f"""\
# Written by fedpurin. Method and raw path must match exactly; all else is 404.
daemon off;
{user}worker_processes 1;
pid "{folder}/nginx.pid";
error_log "{folder}/nginx-error.log" warn;
worker_rlimit_nofile 8192;
events {{ worker_connections 4096; }}  # heads that dribble in hold one each, and no limit counts them
http {{
    access_log off;
    server_tokens off;
    default_type application/octet-stream;
{temporary}

    map "$request_method $request_uri" $fleet {{
        default 0;
{allowed}
    }}
    limit_conn_zone $binary_remote_addr zone=addresses:1m;
    limit_req_zone $binary_remote_addr zone=requests:1m rate=20r/s;

    upstream superlink {{
        server {self.superlink};
        keepalive 16;
        keepalive_timeout 4s;  # below the SuperLink's own 5 s, so that it never hangs up first
    }}
    server {{
        listen {self.listen} ssl;
        ssl_certificate "{keys}/public.pem";
        ssl_certificate_key "{keys}/public.key";
        ssl_protocols TLSv1.2 TLSv1.3;
        client_max_body_size {self.max_body_mb}m;
        client_header_timeout {self.header_seconds}s;
        client_body_timeout {self.body_seconds}s;
        reset_timedout_connection on;
        limit_conn addresses 16;
        limit_conn_status 503;  # Flower tries again after 502, 503 and 504 only
        limit_req zone=requests burst=200 nodelay;
        limit_req_status 503;

        error_page 400 =404 /nothing;  # what nginx itself refuses, such as paths that leave the root
        if ($fleet = 0) {{ return 404; }}
        location / {{
            proxy_pass https://superlink;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host localhost;
            proxy_ssl_verify on;
            proxy_ssl_name localhost;
            proxy_ssl_trusted_certificate "{keys}/ca.pem";
            proxy_read_timeout 120s;
            proxy_request_buffering off;  # no temporary files, so the folder may be private
            proxy_max_temp_file_size 0;
        }}
    }}
}}
"""

    def command(self) -> list[str]:
        """What to run, with its configuration written. Works without root when the port is above 1023."""
        folder = self.folder.resolve()
        folder.mkdir(parents=True, exist_ok=True)
        config, log = folder / "nginx.conf", folder / "nginx-error.log"
        config.write_text(self.config())
        return [find_nginx(), "-p", str(folder), "-e", str(log), "-c", str(config)]


def find_nginx() -> str:
    """The nginx program, also where it is installed outside the PATH of ordinary accounts."""
    nginx = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/opt/homebrew/bin")
    if not nginx:
        raise EngineError(
            "nginx is not installed, and the server is not opened to the network without it: "
            "install it (Debian: apt install nginx-light), or try things on this machine with "
            "`fedpurin federation up`"
        )
    return nginx

#!/usr/bin/env python3
"""A server of files over HTTP that misbehaves as it is told, and counts what it was asked for.

usage: bad_server.py DIRECTORY [ACCESS_KEY SECRET_KEY [SESSION_TOKEN]]

Prints its port, which is on 127.0.0.1. GET /MODE+MODE.../NAME answers with DIRECTORY/NAME, in ways that
the modes name: those with a number behind them (cut2) for that number of first requests of the path. Below
/s3/, where keys are given, each request must be signed by them (AWS's Signature Version 4), as checked
here from AWS's description of it. GET /_ranges/PATH lists the ranges of PATH that were asked for,
/_requests/PATH counts the requests. /latest/ is the metadata service of an instance, version 2, and
/container that of a container; DIRECTORY/service.json may say what they give: "keys", "expires_in"
(seconds), "status", and "silent", the number of times it hangs up without an answer. Both are counted as /latest.
"""

import datetime
import hashlib
import hmac
import http.server
import json
import pathlib
import re
import socket
import sys
import threading
import time
import urllib.parse

PIECE = 1 << 16
LONG = 60  # seconds: longer than any client here waits


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, directory, keys):
        super().__init__(("127.0.0.1", 0), Handler)
        self.directory = pathlib.Path(directory)
        self.keys = keys
        self.lock = threading.Lock()
        self.ranges = {}

    def handle_error(self, request, client_address):
        pass  # clients that hang up are what is tested


def sign(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def signature_fault(headers, path, keys):
    """What is wrong with the signature of a GET; "" where it is right."""
    match = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/s3/aws4_request, ?"
                         r"SignedHeaders=([^,]+), ?Signature=([0-9a-f]{64})",
                         headers.get("Authorization", ""))
    if not match:
        return "AccessDenied"
    key, day, region, names, signature = match.groups()
    if key != keys[0]:
        return "InvalidAccessKeyId"
    names = names.split(";")
    if not {"host", "x-amz-date", "x-amz-content-sha256"} <= set(names) or names != sorted(names):
        return "HeadersNotSigned"
    if keys[2:] and ("x-amz-security-token" not in names or headers["x-amz-security-token"] != keys[2]):
        return "InvalidToken"
    # Each byte of the path but those that stand for themselves as %XX, once: what S3 does.
    canonical = urllib.parse.quote(urllib.parse.unquote_to_bytes(path), safe="/-_.~")
    request = "\n".join(["GET", canonical, "",
                         *(f"{name}:{' '.join(headers[name].split())}" for name in names), "",
                         ";".join(names), headers["x-amz-content-sha256"]])
    text = "\n".join(["AWS4-HMAC-SHA256", headers["x-amz-date"], f"{day}/{region}/s3/aws4_request",
                      hashlib.sha256(request.encode()).hexdigest()])
    derived = ("AWS4" + keys[1]).encode()
    for part in (day, region, "s3", "aws4_request"):
        derived = sign(derived, part)
    return "" if sign(derived, text).hex() == signature else "SignatureDoesNotMatch"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def reply(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def is_silent(self):
        with self.server.lock:
            self.server.ranges.setdefault("/latest", []).append("")
        told = self.told()
        if told.get("silent", 0) == 0:
            return False
        told["silent"] -= 1
        (self.server.directory / "service.json").write_text(json.dumps(told))
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)
        return True

    def told(self):
        path = self.server.directory / "service.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def do_PUT(self):
        if self.is_silent():
            return
        self.reply(200, b"a-token") if self.path == "/latest/api/token" else self.reply(404)

    def do_GET(self):
        path = self.path
        if path.startswith("/_ranges/"):
            return self.reply(200, json.dumps(self.server.ranges.get(path[8:], [])).encode())
        if path.startswith("/_requests/"):
            return self.reply(200, str(len(self.server.ranges.get(path[10:], []))).encode())
        if path.startswith(("/latest/", "/container")):
            return self.give_keys(path)
        with self.server.lock:
            asked = self.server.ranges.setdefault(path, [])
            asked.append(self.headers.get("Range", ""))
            number = len(asked)  # of this request for the path, from 1
        if path.startswith("/s3/") and self.server.keys:
            if fault := signature_fault(self.headers, path, self.server.keys):
                return self.reply(403, f"<Error><Code>{fault}</Code><Message>{self.server.keys[1]}"
                                  "</Message></Error>".encode())
        modes, name = urllib.parse.unquote(path.removeprefix("/s3")).lstrip("/").split("/", 1)
        active = {}
        for mode in modes.split("+"):
            word, count = re.fullmatch(r"(\D+)(\d*)", mode).groups()
            if not count or number <= int(count):
                active[word] = number
        self.answer(active, name)

    def give_keys(self, path):
        if self.is_silent():
            return
        told = self.told()
        if "status" in told:
            return self.reply(told["status"])
        expires = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(
            seconds=told.get("expires_in", 3600))
        keys = told.get("keys", self.server.keys)
        given = json.dumps({"AccessKeyId": keys[0], "SecretAccessKey": keys[1], "Token": (*keys, "")[2],
                            "Expiration": expires.strftime("%Y-%m-%dT%H:%M:%SZ")}).encode()
        if path == "/container":
            return self.reply(200, given) if self.headers.get("Authorization") == "let-me" else self.reply(403)
        if self.headers.get("X-aws-ec2-metadata-token") != "a-token":
            return self.reply(401)
        self.reply(200, given if path.endswith("/a-role") else b"a-role")

    def answer(self, modes, name):
        for word, status in (("busy", 503), ("error", 500), ("many", 429), ("forbidden", 403),
                             ("missing", 404), ("login", 401)):
            if word in modes:
                after = {"Retry_After": "100" if "long" in modes else "1"} if "after" in modes else {}
                return self.reply(status, b"<Error><Code>SlowDown</Code></Error>", **after)
        if "drop" in modes:
            self.close_connection = True
            return self.connection.shutdown(socket.SHUT_RDWR)
        if "circle" in modes:
            return self.reply(302, Location=self.path)
        if "elsewhere" in modes:
            return self.reply(302, Location="/plain/" + name)
        if "region" in modes and "/eu-west-9/" not in self.headers.get("Authorization", ""):
            return self.reply(301, b"<Error><Code>PermanentRedirect</Code></Error>",
                              x_amz_bucket_region="eu-west-9")
        if "expired" in modes or ("old" in modes and "Credential=old/" in self.headers.get("Authorization", "")):
            return self.reply(400, b"<Error><Code>ExpiredToken</Code></Error>")
        self.send_file(modes, self.server.directory / (name + ".new" if "changed" in modes else name))

    def send_file(self, modes, path):
        if not path.is_file():
            return self.reply(404)
        size = path.stat().st_size
        first, end = 0, size
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        is_range = match and "noranges" not in modes
        if is_range:
            first, end = int(match[1]), min(int(match[2] or size - 1) + 1, size)
            if first >= size:
                return self.reply(416)
        self.send_response(206 if is_range else 200)
        shift = 1 if "wrongrange" in modes else 0
        if is_range:
            total = size + 1 if "wrongsize" in modes else size
            self.send_header("Content-Range", f"bytes {first + shift}-{end - 1 + shift}/{total}")
        length = end - first
        chunked = "more" in modes or "chunked" in modes
        if chunked:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            lie = {"shortlength": length // 2, "longlength": length + 1000}
            claimed = next((lie[word] for word in lie if word in modes), length)
            self.send_header("Content-Length", str(claimed))
            length = min(length, claimed)
        self.end_headers()
        self.send_body(modes, path, first, length, chunked)

    def send_body(self, modes, path, first, length, chunked):
        stop = length // 3 if modes.keys() & {"cut", "stall"} else length
        with open(path, "rb") as file:
            file.seek(first)
            sent = 0
            while sent < stop:
                piece = bytearray(file.read(min(PIECE, stop - sent)))
                if "flip" in modes:
                    piece[0] ^= 1
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
                sent += len(piece)
                if "slow" in modes:
                    time.sleep(0.01)
        if "more" in modes:
            self.wfile.write(b"400\r\n" + bytes(1024) + b"\r\n")
        if chunked:
            self.wfile.write(b"0\r\n\r\n")
        if "stall" in modes:
            time.sleep(LONG)
        if modes.keys() & {"cut", "stall", "longlength"}:
            self.close_connection = True


if __name__ == "__main__":
    server = Server(sys.argv[1], sys.argv[2:])
    print(server.server_address[1], flush=True)
    server.serve_forever()

"""Stands between a browser and plait serve, and adds a test to the page: python3 page_proxy.py PORT TEST.js PORT-FILE.
Ends with what the test has posted to /result: a line for each failure, none where all is well."""
import http.client
import http.server
import os
import sys
import threading

to, script, port_file = int(sys.argv[1]), open(sys.argv[2]).read(), sys.argv[3]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"

    def log_message(self, *_):
        pass

    def forward(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path == "/result":
            text = body.decode()
            print(text, end="", flush=True)
            os._exit(1 if text else 0)
        c = http.client.HTTPConnection("127.0.0.1", to, timeout=60)
        c.request(self.command, self.path, body or None, {"Content-Type": "application/json"})
        r = c.getresponse()
        self.send_response(r.status)
        self.send_header("Content-Type", r.headers["Content-Type"])
        self.end_headers()
        if self.path == "/":
            page = r.read().decode()
            self.wfile.write(page.replace("</body>", "<script>" + script + "</script></body>").encode())
            return
        try:
            while True:
                piece = r.read1(4096)
                if not piece:
                    break
                self.wfile.write(piece)
                self.wfile.flush()
        except OSError:
            pass  # the browser has stopped
        c.close()

    do_GET = do_POST = forward


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
with open(port_file + ".part", "w") as f:
    f.write("%d\n" % server.server_address[1])
os.rename(port_file + ".part", port_file)
threading.Timer(120, lambda: (print("the page's test did not end"), os._exit(1))).start()
server.serve_forever()

// Browsers start no worker for a page that is opened from a folder. There the search's script runs
// in a hidden frame instead, to which messages go as they would to a worker: copied, and later.
if (location.protocol === "file:") {
    window.Worker = class {
        constructor(url) {
            this.frame = document.createElement("iframe");
            this.frame.hidden = true;
            document.documentElement.append(this.frame);
            const inside = this.frame.contentWindow;
            inside.postMessage = data => this.pass(data, () => this);
            const script = inside.document.createElement("script");
            this.started = new Promise(done => { script.onload = done; });
            script.src = url;
            inside.document.body.append(script);
        }
        pass(data, receiver) {
            const copy = structuredClone(data);
            setTimeout(() => receiver()?.onmessage?.({ data: copy }));
        }
        postMessage(data) {
            this.started.then(() => this.pass(data, () => this.frame.contentWindow));
        }
        terminate() {
            this.frame.remove();
        }
    };
}

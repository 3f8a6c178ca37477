//! Tokens to a checked expression: the grammar and the compile-time checks of broker spec 10.4.
//! Chains of AND and OR are flat, so that a long selector does not nest.

use super::lexer::{Keyword, Lexer, Token};
use super::{MAX_DEPTH, SelectorError};

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Constant {
    Null,
    Bool(bool),
    Text(String),
    Int(i32),
    Long(i64),
    Double(f64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Expression {
    Constant(Constant),
    Property(String),
    Negate(Box<Expression>),
    Not(Box<Expression>),
    /// A bare property where a boolean is wanted.
    AsBool(String),
    Equal(Box<Expression>, Box<Expression>),
    NotEqual(Box<Expression>, Box<Expression>),
    IsNull(Box<Expression>),
    IsNotNull(Box<Expression>),
    Compare(Order, Box<Expression>, Box<Expression>),
    In {
        property: String,
        values: Vec<String>,
        negated: bool,
    },
    And(Vec<Expression>),
    Or(Vec<Expression>),
}

impl Expression {
    /// Adds the properties it names, each once.
    pub(super) fn names(&self, out: &mut Vec<Box<str>>) {
        match self {
            Self::Constant(_) => {}
            Self::Property(name) | Self::AsBool(name) | Self::In { property: name, .. } => {
                if out.iter().all(|known| **known != **name) {
                    out.push(name.as_str().into());
                }
            }
            Self::Negate(inner)
            | Self::Not(inner)
            | Self::IsNull(inner)
            | Self::IsNotNull(inner) => inner.names(out),
            Self::Equal(left, right)
            | Self::NotEqual(left, right)
            | Self::Compare(_, left, right) => {
                left.names(out);
                right.names(out);
            }
            Self::And(operands) | Self::Or(operands) => {
                for operand in operands {
                    operand.names(out);
                }
            }
        }
    }
}

/// An expression with the number of levels below it.
struct Node {
    expression: Expression,
    depth: usize,
}

impl Node {
    fn leaf(expression: Expression) -> Self {
        Self {
            expression,
            depth: 1,
        }
    }

    fn constant(&self) -> Option<&Constant> {
        match &self.expression {
            Expression::Constant(c) => Some(c),
            _ => None,
        }
    }

    /// Whether the value is a boolean by its form (a bare property is not).
    fn is_boolean(&self) -> bool {
        !matches!(
            self.expression,
            Expression::Property(_)
                | Expression::Negate(_)
                | Expression::Constant(
                    Constant::Text(_) | Constant::Int(_) | Constant::Long(_) | Constant::Double(_)
                )
        )
    }
}

pub(super) fn parse(text: &str) -> Result<Expression, SelectorError> {
    let mut lexer = Lexer::new(text);
    let (token, at) = lexer.next()?;
    let mut parser = Parser {
        lexer,
        token,
        at,
        open: 0,
    };
    let node = parser.or()?;
    Ok(parser.boolean(node)?.expression)
}

struct Parser<'t> {
    lexer: Lexer<'t>,
    token: Token,
    at: usize,
    open: usize,
}

type Parsed = Result<Node, SelectorError>;

impl Parser<'_> {
    fn advance(&mut self) -> Result<Token, SelectorError> {
        let (token, at) = self.lexer.next()?;
        self.at = at;
        Ok(std::mem::replace(&mut self.token, token))
    }

    fn take(&mut self, token: &Token) -> Result<bool, SelectorError> {
        let found = self.token == *token;
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    fn take_keyword(&mut self, keyword: Keyword) -> Result<bool, SelectorError> {
        self.take(&Token::Keyword(keyword))
    }

    fn expect(&mut self, token: Token, expected: &'static str) -> Result<(), SelectorError> {
        if self.take(&token)? {
            Ok(())
        } else {
            Err(self.unexpected(expected))
        }
    }

    fn unexpected(&self, expected: &'static str) -> SelectorError {
        let found = match &self.token {
            Token::End => "the end".to_owned(),
            Token::Name(name) => name.clone(),
            Token::Text(text) => format!("'{text}'"),
            Token::Symbol(symbol) => (*symbol).to_owned(),
            Token::Keyword(keyword) => format!("{keyword:?}").to_uppercase(),
            Token::Int(n) => n.to_string(),
            Token::Long(n) => n.to_string(),
            Token::Double(n) => n.to_string(),
        };
        SelectorError::Unexpected {
            expected,
            found,
            at: self.at,
        }
    }

    fn wrong(&self, what: &'static str) -> SelectorError {
        SelectorError::Meaning { what, at: self.at }
    }

    /// Enters one more level of parentheses or unary operators.
    fn deeper(&mut self) -> Result<(), SelectorError> {
        self.open += 1;
        if self.open > MAX_DEPTH {
            Err(SelectorError::TooDeep(self.at))
        } else {
            Ok(())
        }
    }

    fn node(&self, expression: Expression, below: usize) -> Parsed {
        if below >= MAX_DEPTH {
            return Err(SelectorError::TooDeep(self.at));
        }
        Ok(Node {
            expression,
            depth: below + 1,
        })
    }

    fn pair(
        &self,
        left: Node,
        right: Node,
        join: fn(Box<Expression>, Box<Expression>) -> Expression,
    ) -> Parsed {
        let below = left.depth.max(right.depth);
        self.node(
            join(Box::new(left.expression), Box::new(right.expression)),
            below,
        )
    }

    /// Refuses what can never be a boolean; a bare property is read as one.
    fn boolean(&self, node: Node) -> Parsed {
        match node.expression {
            Expression::Property(name) => Ok(Node::leaf(Expression::AsBool(name))),
            _ if node.is_boolean() => Ok(node),
            _ => Err(self.wrong("a number or text where a condition is needed")),
        }
    }

    fn or(&mut self) -> Parsed {
        self.chain(Keyword::Or, Self::and, Expression::Or)
    }

    fn and(&mut self) -> Parsed {
        self.chain(Keyword::And, Self::equality, Expression::And)
    }

    fn chain(
        &mut self,
        keyword: Keyword,
        operand: fn(&mut Self) -> Parsed,
        join: fn(Vec<Expression>) -> Expression,
    ) -> Parsed {
        let first = operand(self)?;
        if self.token != Token::Keyword(keyword) {
            return Ok(first);
        }
        let first = self.boolean(first)?;
        let mut below = first.depth;
        let mut operands = vec![first.expression];
        while self.take_keyword(keyword)? {
            let next = operand(self)?;
            let next = self.boolean(next)?;
            below = below.max(next.depth);
            operands.push(next.expression);
        }
        self.node(join(operands), below)
    }

    fn equality(&mut self) -> Parsed {
        let mut left = self.comparison()?;
        loop {
            left = if self.take(&Token::Symbol("="))? {
                self.equal(left, Expression::Equal)?
            } else if self.take(&Token::Symbol("<>"))? {
                self.equal(left, Expression::NotEqual)?
            } else if self.take_keyword(Keyword::Is)? {
                let negated = self.take_keyword(Keyword::Not)?;
                self.expect(Token::Keyword(Keyword::Null), "NULL or NOT NULL behind IS")?;
                let inner = Box::new(left.expression);
                let expression = if negated {
                    Expression::IsNotNull(inner)
                } else {
                    Expression::IsNull(inner)
                };
                self.node(expression, left.depth)?
            } else {
                return Ok(left);
            };
        }
    }

    fn equal(
        &mut self,
        left: Node,
        join: fn(Box<Expression>, Box<Expression>) -> Expression,
    ) -> Parsed {
        let right = self.comparison()?;
        let null = Some(&Constant::Null);
        if left.constant() == null || right.constant() == null {
            return Err(self.wrong("NULL cannot be compared, use IS NULL"));
        }
        if let (Some(Constant::Bool(_)), Some(other)) = (left.constant(), right.constant())
            && !matches!(other, Constant::Bool(_))
        {
            return Err(self.wrong("a boolean compared with something else"));
        }
        self.pair(left, right, join)
    }

    fn comparison(&mut self) -> Parsed {
        let mut left = self.unary()?;
        loop {
            let order = match self.token {
                Token::Symbol(">") => Some(Order::Greater),
                Token::Symbol(">=") => Some(Order::GreaterOrEqual),
                Token::Symbol("<") => Some(Order::Less),
                Token::Symbol("<=") => Some(Order::LessOrEqual),
                _ => None,
            };
            left = if let Some(order) = order {
                self.advance()?;
                let right = self.unary()?;
                self.ordered(order, left, right)?
            } else if self.take_keyword(Keyword::Between)? {
                self.between(left, false)?
            } else if self.take_keyword(Keyword::In)? {
                self.in_list(left, false)?
            } else if self.take_keyword(Keyword::Not)? {
                if self.take_keyword(Keyword::Between)? {
                    self.between(left, true)?
                } else if self.take_keyword(Keyword::In)? {
                    self.in_list(left, true)?
                } else {
                    return Err(self.unexpected("BETWEEN or IN behind NOT"));
                }
            } else {
                return Ok(left);
            };
        }
    }

    fn ordered(&self, order: Order, left: Node, right: Node) -> Parsed {
        for side in [&left, &right] {
            if side.is_boolean() {
                return Err(self.wrong("a boolean or NULL cannot be ordered"));
            }
            if matches!(side.constant(), Some(Constant::Text(_))) {
                return Err(self.wrong("text cannot be ordered, only numbers can"));
            }
        }
        let below = left.depth.max(right.depth);
        self.node(
            Expression::Compare(order, Box::new(left.expression), Box::new(right.expression)),
            below,
        )
    }

    fn between(&mut self, value: Node, negated: bool) -> Parsed {
        let low = self.unary()?;
        self.expect(
            Token::Keyword(Keyword::And),
            "AND between the bounds of BETWEEN",
        )?;
        let high = self.unary()?;
        if !negated
            && let (Some(low), Some(high)) = (low.constant(), high.constant())
            && let (Some(low), Some(high)) = (as_double(low), as_double(high))
            && low > high
        {
            return Err(self.wrong("the lower bound of BETWEEN is above the upper one"));
        }
        let copy = Node {
            expression: value.expression.clone(),
            depth: value.depth,
        };
        let (first, second) = if negated {
            (Order::Less, Order::Greater)
        } else {
            (Order::GreaterOrEqual, Order::LessOrEqual)
        };
        let first = self.ordered(first, value, low)?;
        let second = self.ordered(second, copy, high)?;
        let below = first.depth.max(second.depth);
        let halves = vec![first.expression, second.expression];
        self.node(
            if negated {
                Expression::Or(halves)
            } else {
                Expression::And(halves)
            },
            below,
        )
    }

    fn in_list(&mut self, left: Node, negated: bool) -> Parsed {
        self.expect(Token::Symbol("("), "( behind IN")?;
        let mut values = Vec::new();
        loop {
            match self.advance()? {
                Token::Text(value) => values.push(value),
                other => {
                    self.token = other;
                    return Err(self.unexpected("a text in quotes in the list of IN"));
                }
            }
            if !self.take(&Token::Symbol(","))? {
                break;
            }
        }
        self.expect(Token::Symbol(")"), ") behind the list of IN")?;
        match left.expression {
            Expression::Property(property) => Ok(Node::leaf(Expression::In {
                property,
                values,
                negated,
            })),
            _ => Err(self.wrong("IN needs a property name on its left")),
        }
    }

    fn unary(&mut self) -> Parsed {
        if self.take(&Token::Symbol("+"))? {
            self.deeper()?;
            let node = self.unary();
            self.open -= 1;
            node
        } else if self.take(&Token::Symbol("-"))? {
            self.deeper()?;
            let inner = self.unary()?;
            self.open -= 1;
            self.negate(inner)
        } else if self.take_keyword(Keyword::Not)? {
            self.deeper()?;
            let inner = self.unary()?;
            self.open -= 1;
            match self.boolean(inner)? {
                // NOT NOT x is x in three-valued logic too.
                Node {
                    expression: Expression::Not(twice),
                    depth,
                } => Ok(Node {
                    expression: *twice,
                    depth: depth - 1,
                }),
                once => self.node(Expression::Not(Box::new(once.expression)), once.depth),
            }
        } else {
            self.primary()
        }
    }

    /// `- - - x` is `- x`; two signs stay, since they make NULL of what is no number.
    fn negate(&self, inner: Node) -> Parsed {
        match inner {
            Node {
                expression: Expression::Negate(second),
                depth,
            } => match *second {
                third @ Expression::Negate(_) => Ok(Node {
                    expression: third,
                    depth: depth - 1,
                }),
                value => self.node(
                    Expression::Negate(Box::new(Expression::Negate(Box::new(value)))),
                    depth,
                ),
            },
            Node { expression, depth } => {
                self.node(Expression::Negate(Box::new(expression)), depth)
            }
        }
    }

    fn primary(&mut self) -> Parsed {
        let constant = match &self.token {
            Token::Text(text) => Constant::Text(text.clone()),
            Token::Int(n) => Constant::Int(*n),
            Token::Long(n) => Constant::Long(*n),
            Token::Double(n) => Constant::Double(*n),
            Token::Keyword(Keyword::True) => Constant::Bool(true),
            Token::Keyword(Keyword::False) => Constant::Bool(false),
            Token::Keyword(Keyword::Null) => Constant::Null,
            Token::Name(name) => {
                let property = Expression::Property(name.clone());
                self.advance()?;
                return Ok(Node::leaf(property));
            }
            Token::Symbol("(") => {
                self.advance()?;
                self.deeper()?;
                let inner = self.or()?;
                self.open -= 1;
                self.expect(Token::Symbol(")"), ") to close the parenthesis")?;
                return Ok(inner);
            }
            _ => return Err(self.unexpected("a value, a property name or a parenthesis")),
        };
        self.advance()?;
        Ok(Node::leaf(Expression::Constant(constant)))
    }
}

fn as_double(constant: &Constant) -> Option<f64> {
    match constant {
        Constant::Int(n) => Some(f64::from(*n)),
        Constant::Long(n) => Some(*n as f64),
        Constant::Double(n) => Some(*n),
        _ => None,
    }
}
